// Signature vectors made and judged by Stripe's own library.
//
//   node stripe_vectors.mjs            writes signature_vectors.json and signature_corpus.json to tests/fixtures/stripe
//   node stripe_vectors.mjs --check    fails when these files are not what this program writes
//   node stripe_vectors.mjs --verify   reads [{"secret", "header", "body_base64"}, ...] from standard input and prints
//                                      [{"accepted": true|false, "error": "..."}, ...] in the same order. The
//                                      timestamp tolerance is off: a vector stays valid for ever.
import {createHmac} from 'node:crypto';
import {readFileSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import Stripe from 'stripe';

const output = (name) => fileURLToPath(new URL(`../fixtures/stripe/${name}`, import.meta.url));
// The library wants a key to be constructed; nothing here calls Stripe.
const webhooks = new Stripe('sk_test_not_a_key').webhooks;

const SECRET = 'whsec_3a9dL0cKq2vT7yXwZb5RmUeH8sGjNfPo';
const OLD_SECRET = 'whsec_retired_0f1e2d3c4b5a69788796a5b4c3d2e1f0';
const TIMESTAMP = 1764500000;

const event = (extra) => `{"id":"evt_vector","object":"event","type":"invoice.paid"${extra}}`;

// Each body is the text as sent: parsing and printing it again gives other bytes (C021).
const BODIES = {
  plain: event(''),
  two_spaces: '{"id":  "evt_vector",  "object": "event", "type": "invoice.paid"}',
  escaped_slash: event(',"url":"https:\\/\\/example.com\\/a"'),
  escaped_unicode: event(',"name":"\\u4e2d\\u6587"'),
  raw_unicode: event(',"name":"中文 é 🙂"'),
  decimal_one: event(',"amount":1.0,"rate":1e2,"big":12345678901234567890'),
  keys_z_a: '{"z":1,"a":2,"id":"evt_vector","object":"event","type":"invoice.paid"}',
  duplicate_key: event(',"livemode":true,"livemode":false'),
  trailing_newline: event('') + '\n',
  crlf: '{\r\n  "id": "evt_vector",\r\n  "object": "event",\r\n  "type": "invoice.paid"\r\n}\r\n',
  tabs_indented: '{\n\t"id": "evt_vector",\n\t"object": "event",\n\t"type": "invoice.paid"\n}',
  empty_object: '{}',
  dots: event(',"text":"1764500000.t=1,v1=00"'),
  long: event(`,"text":"${'0123456789abcdef'.repeat(256)}"`),
};

const header = (payload, secret, timestamp) => webhooks.generateTestHeaderString({payload, secret, timestamp});
const v1 = (text) => text.split(',').find((part) => part.startsWith('v1='));

function vectors() {
  const all = [];
  const add = (name, secret, timestamp, body, text) =>
    all.push({name, secret, timestamp, body_base64: Buffer.from(body, 'utf8').toString('base64'), header: text});

  for (const [name, body] of Object.entries(BODIES)) {
    add(name, SECRET, TIMESTAMP, body, header(body, SECRET, TIMESTAMP));
  }
  add('timestamp_one', SECRET, 1, BODIES.plain, header(BODIES.plain, SECRET, 1));
  add('timestamp_after_2038', SECRET, 4102444800, BODIES.plain, header(BODIES.plain, SECRET, 4102444800));
  add('secret_without_prefix', 'plain-secret', TIMESTAMP, BODIES.plain, header(BODIES.plain, 'plain-secret', TIMESTAMP));
  add('secret_not_ascii', 'whsec_ключ', TIMESTAMP, BODIES.plain, header(BODIES.plain, 'whsec_ключ', TIMESTAMP));

  // Rotation (C022): the header carries one signature per live secret, in either order; either secret accepts it.
  const body = BODIES.plain;
  const [oldOne, newOne] = [v1(header(body, OLD_SECRET, TIMESTAMP)), v1(header(body, SECRET, TIMESTAMP))];
  for (const [name, text] of [
    ['rotation_old_new', `t=${TIMESTAMP},${oldOne},${newOne}`],
    ['rotation_new_old', `t=${TIMESTAMP},${newOne},${oldOne}`],
  ]) {
    add(name + '_checked_with_new', SECRET, TIMESTAMP, body, text);
    add(name + '_checked_with_old', OLD_SECRET, TIMESTAMP, body, text);
  }
  // A scheme that is not v1 stands beside it in test mode and is passed over.
  add('with_v0_scheme', SECRET, TIMESTAMP, body, `t=${TIMESTAMP},v0=${'0'.repeat(64)},${newOne}`);
  return all;
}

function judge({secret, header: text, body_base64: body}) {
  try {
    // Tolerance 0 means that the age of the timestamp is not looked at.
    webhooks.signature.verifyHeader(Buffer.from(body, 'base64'), text, secret, 0);
    return {accepted: true};
  } catch (error) {
    return {accepted: false, error: String(error.message).split('\n')[0]};
  }
}

// ---- headers of all shapes, each with the library's verdict and with ours, written apart from the product ----

const NOW = TIMESTAMP;
const CORPUS_BODY = '{"id":"evt_corpus"}';
const CORPUS_SECRETS = [SECRET, OLD_SECRET];

// mulberry32: the corpus is the same on every machine.
function randomFrom(seed) {
  return (below) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let x = Math.imul(seed ^ (seed >>> 15), seed | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) % below;
  };
}

// The rules, without a look at the code that follows them: at most 8 KiB and 16 entries; one "t" of 1 to 19 digits, the
// first of several no zero; an entry "v1" that is the lower-case HMAC of timestamp, dot and body under a live secret;
// then at most 300 s from now, either way.
function accepts(text, body) {
  if (Buffer.byteLength(text, 'latin1') > 8192) return false;
  const entries = text.split(',');
  const stamps = entries.filter((entry) => entry === 't' || entry.startsWith('t='));
  if (entries.length > 16 || stamps.length !== 1 || !/^t=(0|[1-9][0-9]{0,18})$/.test(stamps[0])) return false;
  const stamp = stamps[0].slice(2);
  const far = BigInt(stamp) - BigInt(NOW);
  if (far < -300n || far > 300n) return false;
  return CORPUS_SECRETS.some((secret) => {
    const digest = createHmac('sha256', secret).update(`${stamp}.`).update(body).digest('hex');
    return entries.includes(`v1=${digest}`);
  });
}

// Of any of the live secrets; it looks at one at a time.
function libraryAccepts(text, body) {
  return CORPUS_SECRETS.some((secret) => {
    try {
      return webhooks.signature.verifyHeader(body, text, secret, 300, undefined, NOW * 1000);
    } catch {
      return false;
    }
  });
}

function corpus() {
  const random = randomFrom(1);
  const pick = (list) => list[random(list.length)];
  const stamps = ['', '0', '1', '-1', '+5', ' 5', '5 ', '1e3', '0x10', 'abc', '1764500000.0', '01764500000', '2147483648',
    '9223372036854775807', '9223372036854775808', '99999999999999999999', '1764500000 ', ' 1764500000',
    ...[-301, -300, -1, 0, 1, 300, 301].map((offset) => String(NOW + offset))];
  const all = [];
  const texts = new Set();
  while (all.length < 240) {
    const stamp = random(3) === 0 ? pick(stamps) : String(NOW + pick([-300, 0, 0, 0, 300]));
    const digest = (secret) => createHmac('sha256', secret).update(`${stamp}.${CORPUS_BODY}`).digest('hex');
    const entry = () => pick([
      () => `v1=${digest(SECRET)}`, () => `v1=${digest(OLD_SECRET)}`, () => `v1=${digest('whsec_stranger')}`,
      () => `v0=${digest(SECRET)}`, () => `V1=${digest(SECRET)}`, () => `v1=${digest(SECRET).toUpperCase()}`,
      () => `v1= ${digest(SECRET)}`, () => ` v1=${digest(SECRET)}`, () => `v1=${digest(SECRET)} `,
      () => `v1=${digest(SECRET).slice(0, 1 + random(63))}`, () => `v1=${digest(SECRET)}0`, () => `v1==${digest(SECRET)}`,
      () => 'v1=', () => 'v1', () => 'v1,', () => '', () => '=', () => 't', () => `t=${NOW}`, () => 't=', () => 'x=y',
      () => `v2=${digest(SECRET)}`, () => `"v1"=${digest(SECRET)}`, () => `v1=${'0'.repeat(64)}`,
    ])();
    let entries = Array.from({length: pick([0, 1, 1, 1, 2, 2, 3, 5, 14, 15, 16])}, entry);
    if (random(8) !== 0) entries.splice(random(2) === 0 ? 0 : random(entries.length + 1), 0, `t=${stamp}`);
    if (random(3) !== 0) entries.splice(random(entries.length + 1), 0, `v1=${digest(pick(CORPUS_SECRETS))}`);
    const text = entries.join(pick([',', ',', ',', ',', ',', ', ', ';', ' ']));
    // Many headers of nothing but noise teach nothing.
    if (texts.has(text) || (text.length > 700 && random(4) !== 0)) continue;
    texts.add(text);
    all.push({header: text, accepted: accepts(text, CORPUS_BODY), accepted_by_library: libraryAccepts(text, CORPUS_BODY)});
  }
  for (const size of [8191, 8192, 8193]) {
    const signed = header(CORPUS_BODY, SECRET, NOW);
    const text = `${signed},x=${'x'.repeat(size - signed.length - 3)}`;
    all.push({header: text, accepted: accepts(text, CORPUS_BODY), accepted_by_library: libraryAccepts(text, CORPUS_BODY)});
  }
  for (const {header: text, accepted, accepted_by_library: library} of all) {
    // It ends on a "v1" without a value, whatever stands beside it; here that is an entry that matches nothing.
    const ends = text.split(',').map((entry) => entry.split('=')).some(([key, value]) => key === 'v1' && !value);
    if (accepted && !library && !ends) throw new Error(`the library refuses what the rules accept: ${text}`);
  }
  return {now: NOW, secrets: CORPUS_SECRETS, body: CORPUS_BODY, headers: all};
}

const mode = process.argv[2];
if (mode === '--verify') {
  console.log(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(judge)));
} else {
  const all = vectors();
  for (const vector of all) {
    const verdict = judge(vector);
    if (!verdict.accepted) throw new Error(`the library refuses its own vector ${vector.name}: ${verdict.error}`);
  }
  const files = {'signature_vectors.json': all, 'signature_corpus.json': corpus()};
  for (const [name, content] of Object.entries(files)) {
    const text = JSON.stringify(content, null, 1) + '\n';
    if (mode === '--check') {
      if (readFileSync(output(name), 'utf8') !== text) {
        console.error(`${name} differs from what stripe_vectors.mjs makes: run node tests/node/stripe_vectors.mjs`);
        process.exit(1);
      }
      console.log(`${name} is what the library makes`);
    } else if (mode === undefined) {
      writeFileSync(output(name), text);
      console.log(`${name} written`);
    } else {
      console.error(`unknown mode ${mode}: none, --check or --verify`);
      process.exit(2);
    }
  }
}
