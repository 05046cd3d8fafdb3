// Posts deliveries that Stripe's own library signed, as they are or with one bit flipped after it signed.
//
//   node stripe_post.mjs URL SECRET    reads [{"body_base64", "flip"?: {"part": "body"|"timestamp"|"signature",
//                                      "bit"}}, ...] from standard input, posts one after the other and prints
//                                      [{"status", "body"}, ...] in the same order. A flip in the header takes the low
//                                      four bits of each byte: the others would be no header that a client can send.
import {readFileSync} from 'node:fs';
import Stripe from 'stripe';

const [url, secret] = process.argv.slice(2);
const webhooks = new Stripe('sk_test_not_a_key').webhooks;

function flipped(text, bit) {
  const bytes = Buffer.from(text, 'latin1');
  bytes[Math.floor(bit / 4)] ^= 1 << bit % 4;
  return bytes.toString('latin1');
}

async function post({body_base64: body64, flip}) {
  const body = Buffer.from(body64, 'base64');
  let [timestamp, signature] =
      webhooks.generateTestHeaderString({payload: body.toString('utf8'), secret}).match(/^t=(\d+),v1=([0-9a-f]+)$/).slice(1);
  if (flip?.part === 'body') body[flip.bit >> 3] ^= 1 << (flip.bit & 7);
  if (flip?.part === 'timestamp') timestamp = flipped(timestamp, flip.bit);
  if (flip?.part === 'signature') signature = flipped(signature, flip.bit);
  const response = await fetch(url, {
    method: 'POST',
    headers: {'content-type': 'application/json', 'stripe-signature': `t=${timestamp},v1=${signature}`},
    body,
  });
  return {status: response.status, body: await response.text()};
}

const answers = [];
for (const delivery of JSON.parse(readFileSync(0, 'utf8'))) answers.push(await post(delivery));
console.log(JSON.stringify(answers));
