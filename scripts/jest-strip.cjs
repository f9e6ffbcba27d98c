// The whole TypeScript support of the test suite: types are blanked, so lines and columns stay as written.
const { stripTypeScriptTypes } = require('node:module');
module.exports = { process: (src) => ({ code: stripTypeScriptTypes(src) }) };
