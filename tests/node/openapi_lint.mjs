// Lints OpenAPI documents; nothing is fetched.
//
//   node openapi_lint.mjs FILE...    prints what is wrong and fails, or prints how many files are right
import {createConfig, lint} from '@redocly/openapi-core';

const files = process.argv.slice(2);
if (files.length === 0) {
  console.error('usage: node openapi_lint.mjs FILE...');
  process.exit(2);
}
const config = await createConfig({
  extends: ['recommended-strict'],
  rules: {
    'no-invalid-schema-examples': 'error',
    'no-invalid-parameter-examples': 'error',
    'operation-description': 'off',
    'parameter-description': 'error',
    'tags-alphabetical': 'off',
  },
});
let problems = 0;
for (const file of files) {
  for (const problem of await lint({ref: file, config})) {
    const where = problem.location[0]?.pointer ?? '';
    console.error(`${file}${where}: ${problem.ruleId}: ${problem.message}`);
    ++problems;
  }
}
if (problems > 0) process.exit(1);
console.log(`${files.length} documents are right`);
