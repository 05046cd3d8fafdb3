// Signature vectors made and judged by Stripe's own library.
//
//   node stripe_vectors.mjs            writes tests/fixtures/stripe/signature_vectors.json
//   node stripe_vectors.mjs --check    fails when that file is not what this program writes
//   node stripe_vectors.mjs --verify   reads [{"secret", "header", "body_base64"}, ...] from standard input and prints
//                                      [{"accepted": true|false, "error": "..."}, ...] in the same order. The
//                                      timestamp tolerance is off: a vector stays valid for ever.
import {readFileSync, writeFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import Stripe from 'stripe';

const OUTPUT = fileURLToPath(new URL('../fixtures/stripe/signature_vectors.json', import.meta.url));
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

const mode = process.argv[2];
if (mode === '--verify') {
  console.log(JSON.stringify(JSON.parse(readFileSync(0, 'utf8')).map(judge)));
} else {
  const all = vectors();
  for (const vector of all) {
    const verdict = judge(vector);
    if (!verdict.accepted) throw new Error(`the library refuses its own vector ${vector.name}: ${verdict.error}`);
  }
  const text = JSON.stringify(all, null, 1) + '\n';
  if (mode === '--check') {
    if (readFileSync(OUTPUT, 'utf8') !== text) {
      console.error('signature_vectors.json differs from what stripe_vectors.mjs makes: run node tests/node/stripe_vectors.mjs');
      process.exit(1);
    }
    console.log(`${all.length} vectors are what the library makes`);
  } else if (mode === undefined) {
    writeFileSync(OUTPUT, text);
    console.log(`${all.length} vectors written`);
  } else {
    console.error(`unknown mode ${mode}: none, --check or --verify`);
    process.exit(2);
  }
}
