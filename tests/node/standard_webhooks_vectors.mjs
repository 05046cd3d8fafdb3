// Signature vectors made and judged by the libraries of Standard Webhooks and of Svix, which share no code.
//
//   node standard_webhooks_vectors.mjs            writes tests/fixtures/standard_webhooks/signature_vectors.json
//   node standard_webhooks_vectors.mjs --check    fails when that file is not what this program writes
//   node standard_webhooks_vectors.mjs --verify   reads [{"keys": [...], "id", "timestamp", "signature", "body_base64",
//                                                 "now"}, ...] from standard input and prints [{"accepted": true|false,
//                                                 "error": "..."}, ...] in the same order. "timestamp" is the header's
//                                                 text, "now" the time in Unix seconds at which it is judged.
//
// Neither library knows v1a. Its vectors are made and judged by Node's own Ed25519.
import {createPrivateKey, createPublicKey, sign as ed25519Sign, verify as ed25519Verify} from 'node:crypto';
import {readFileSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import * as standard from 'standardwebhooks';
import * as svix from 'svix';

const OUTPUT = fileURLToPath(new URL('../fixtures/standard_webhooks/signature_vectors.json', import.meta.url));

const bytes = (count, first) => Buffer.from(Array.from({length: count}, (_, i) => (first + 7 * i) % 256));
const shared = (count, first) => 'whsec_' + bytes(count, first).toString('base64');
const SECRET = shared(32, 1);
const OLD_SECRET = shared(24, 101);
const ID = 'msg_2KWPBgLlAfxdpx2AI54pPJ85f4W';
const TIMESTAMP = 1764500000;

// An Ed25519 private key from its 32 bytes; the DER in front of them is always the same.
const privateKey = (seed) =>
  createPrivateKey({
    key: Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]),
    format: 'der',
    type: 'pkcs8',
  });
const PRIVATE = privateKey(bytes(32, 3));
const OLD_PRIVATE = privateKey(bytes(32, 203));
const SPKI = Buffer.from('302a300506032b6570032100', 'hex');
const publicKey = (key) =>
  'whpk_' + createPublicKey(key).export({format: 'der', type: 'spki'}).subarray(SPKI.length).toString('base64');
const fromPublicKey = (text) =>
  createPublicKey({
    key: Buffer.concat([SPKI, Buffer.from(text.slice('whpk_'.length), 'base64')]),
    format: 'der',
    type: 'spki',
  });

const event = (extra) =>
  `{"type":"subscription.uncanceled","timestamp":"2026-01-01T00:00:00Z","data":{"subscription_id":"sub_1","version":1${extra}}}`;

// Each body is the text as sent: parsing and printing it again gives other bytes (C021).
const BODIES = {
  plain: event(''),
  two_spaces: '{"type":  "a",  "timestamp": "2026-01-01T00:00:00Z", "data": {}}',
  escaped_slash: event(',"url":"https:\\/\\/example.com\\/a"'),
  escaped_unicode: event(',"name":"\\u4e2d\\u6587"'),
  raw_unicode: event(',"name":"中文 é 🙂"'),
  decimal_one: event(',"amount":1.0,"rate":1e2,"big":12345678901234567890'),
  keys_z_a: '{"z":1,"a":2,"type":"a","timestamp":"2026-01-01T00:00:00Z","data":{}}',
  duplicate_key: event(',"livemode":true,"livemode":false'),
  trailing_newline: event('') + '\n',
  crlf: '{\r\n  "type": "a",\r\n  "timestamp": "2026-01-01T00:00:00Z",\r\n  "data": {}\r\n}\r\n',
  empty_object: '{}',
  dots: event(',"text":"msg.1764500000.v1,00 v1a,00"'),
  long: event(`,"text":"${'0123456789abcdef'.repeat(256)}"`),
};

const time = (seconds) => new Date(seconds * 1000);
const v1 = (library, secret, id, timestamp, body) => new library.Webhook(secret).sign(id, time(timestamp), body);
const v1a = (key, id, timestamp, body) =>
  'v1a,' + ed25519Sign(null, Buffer.from(`${id}.${timestamp}.${body}`, 'utf8'), key).toString('base64');

function vectors() {
  const all = [];
  const add = (name, made_by, key, id, timestamp, body, signature) =>
    all.push({
      name,
      made_by,
      key,
      id,
      timestamp: String(timestamp),
      body_base64: Buffer.from(body, 'utf8').toString('base64'),
      signature,
    });

  for (const [name, body] of Object.entries(BODIES)) {
    add(name, 'standardwebhooks', SECRET, ID, TIMESTAMP, body, v1(standard, SECRET, ID, TIMESTAMP, body));
    add(name + '_svix', 'svix', SECRET, ID, TIMESTAMP, body, v1(svix, SECRET, ID, TIMESTAMP, body));
    add(name + '_v1a', 'node', publicKey(PRIVATE), ID, TIMESTAMP, body, v1a(PRIVATE, ID, TIMESTAMP, body));
  }
  const body = BODIES.plain;
  for (const [name, secret] of [
    ['secret_24_bytes', shared(24, 9)],
    ['secret_64_bytes', shared(64, 9)],
    ['secret_without_prefix', SECRET.slice('whsec_'.length)],
    ['secret_with_plus_and_slash', 'whsec_' + Buffer.alloc(33, 0xfb).toString('base64')],
  ]) {
    add(name, 'standardwebhooks', secret, ID, TIMESTAMP, body, v1(standard, secret, ID, TIMESTAMP, body));
  }
  for (const [name, id] of [
    ['id_with_dots', 'msg.1.2'],
    ['id_with_spaces', 'msg 1'],
    ['id_not_ascii', 'msg_é'],
  ]) {
    add(name, 'standardwebhooks', SECRET, id, TIMESTAMP, body, v1(standard, SECRET, id, TIMESTAMP, body));
  }
  for (const [name, timestamp] of [
    ['timestamp_one', 1],
    ['timestamp_after_2038', 4102444800],
  ]) {
    add(name, 'svix', SECRET, ID, timestamp, body, v1(svix, SECRET, ID, timestamp, body));
  }

  // Rotation (C022): one signature per live key, in either order; each key alone accepts it.
  const [oldOne, newOne] = [OLD_SECRET, SECRET].map((secret) => v1(svix, secret, ID, TIMESTAMP, body));
  const [oldTwo, newTwo] = [OLD_PRIVATE, PRIVATE].map((key) => v1a(key, ID, TIMESTAMP, body));
  for (const [name, text] of [
    ['rotation_old_new', [oldOne, newOne, oldTwo, newTwo].join(' ')],
    ['rotation_new_old', [newTwo, oldTwo, newOne, oldOne].join(' ')],
  ]) {
    add(name + '_new_secret', 'svix', SECRET, ID, TIMESTAMP, body, text);
    add(name + '_old_secret', 'svix', OLD_SECRET, ID, TIMESTAMP, body, text);
    add(name + '_new_public_key', 'node', publicKey(PRIVATE), ID, TIMESTAMP, body, text);
    add(name + '_old_public_key', 'node', publicKey(OLD_PRIVATE), ID, TIMESTAMP, body, text);
  }
  // A version that is not known stands beside it and is passed over.
  add('with_v2_and_junk', 'svix', SECRET, ID, TIMESTAMP, body, `v2,${newOne.slice(3)} junk v1 v1, ${newOne}`);
  return all;
}

function verifyV1a(key, {id, timestamp, signature, body}) {
  const text = Buffer.from(`${id}.${timestamp}.${body}`, 'utf8');
  const matches = signature
    .split(' ')
    .filter((entry) => entry.startsWith('v1a,'))
    .some((entry) => ed25519Verify(null, text, fromPublicKey(key), Buffer.from(entry.slice(4), 'base64')));
  if (!matches) throw new Error('no v1a signature matches');
}

function accepts(library, key, {id, timestamp, signature, body}) {
  try {
    const headers = {'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature};
    new library.Webhook(key).verify(body, headers);
    return '';
  } catch (error) {
    // It has read the signature and found it good when it falls over the body.
    return error instanceof SyntaxError ? '' : String(error.message).split('\n')[0];
  }
}

function judgeKey(key, delivery) {
  if (key.startsWith('whpk_')) {
    try {
      verifyV1a(key, delivery);
      return '';
    } catch (error) {
      return String(error.message).split('\n')[0];
    }
  }
  const [one, two] = [accepts(standard, key, delivery), accepts(svix, key, delivery)];
  if ((one === '') !== (two === '')) {
    throw new Error(`the libraries disagree: standardwebhooks ${one || 'accepts'}, svix ${two || 'accepts'}`);
  }
  return one;
}

function judge({keys, now, body_base64: encoded, ...delivery}) {
  const realNow = Date.now;
  Date.now = () => now * 1000;
  try {
    delivery.body = Buffer.from(encoded, 'base64').toString('utf8');
    const errors = keys.map((key) => judgeKey(key, delivery));
    return errors.includes('') ? {accepted: true} : {accepted: false, error: errors.join('; ')};
  } finally {
    Date.now = realNow;
  }
}

const mode = process.argv[2];
if (mode === '--verify') {
  console.log(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(judge)));
} else {
  const all = vectors();
  for (const vector of all) {
    const verdict = judge({...vector, keys: [vector.key], now: Number(vector.timestamp)});
    if (!verdict.accepted) throw new Error(`the library refuses its own vector ${vector.name}: ${verdict.error}`);
  }
  const text = JSON.stringify(all, null, 1) + '\n';
  if (mode === '--check') {
    if (readFileSync(OUTPUT, 'utf8') !== text) {
      console.error(
        'signature_vectors.json differs from what the libraries make: run node tests/node/standard_webhooks_vectors.mjs',
      );
      process.exit(1);
    }
    console.log(`${all.length} vectors are what the libraries make`);
  } else if (mode === undefined) {
    writeFileSync(OUTPUT, text);
    console.log(`${all.length} vectors written`);
  } else {
    console.error(`unknown mode ${mode}: none, --check or --verify`);
    process.exit(2);
  }
}
