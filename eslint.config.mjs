import js from '@eslint/js';
import tseslint from 'typescript-eslint';

const services = ['gateway', 'catalog', 'upload', 'backend-registry', 'placement', 'export'];

/** No service imports another: they meet in proto and common. */
const boundaries = [...services, 'common'].map((service) => ({
  files: [`services/${service}/src/**/*.ts`],
  rules: {
    'no-restricted-imports': [
      'error',
      {
        patterns: [
          {
            group: [
              ...services
                .filter((other) => other !== service)
                .flatMap((other) => [`@stowage/${other}`, `@stowage/${other}/*`]),
              '@stowage/launcher',
              '@stowage/launcher/*',
              '**/services/**',
              '../../../*',
            ],
            message: 'No service imports another: they meet in @stowage/proto and @stowage/common.',
          },
        ],
      },
    ],
  },
}));

const environmentOnlyInMain = {
  files: ['services/**/*.ts', 'launcher/**/*.ts'],
  ignores: [
    '**/main.ts',
    'launcher/src/standalone.ts',
    'launcher/src/services.ts',
    'launcher/src/apply.ts',
    'launcher/src/reseal-secrets.ts',
    'launcher/src/list-content.ts',
    'launcher/src/smoke.ts',
    'launcher/src/migrate.ts',
    '**/*.test.ts',
  ],
  rules: {
    'no-restricted-properties': [
      'error',
      { object: 'process', property: 'env', message: 'Settings are read once, in main, and handed on.' },
    ],
  },
};

export default tseslint.config(
  { ignores: ['**/node_modules/', 'proto/gen/', 'data/', 'coverage/'] },
  js.configs.recommended,
  ...tseslint.configs.recommended,
  {
    files: ['**/*.ts'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': [
        'error',
        { checksVoidReturn: { arguments: false, attributes: false } },
      ],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-non-null-assertion': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      'no-console': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        {
          argsIgnorePattern: '^_',
          varsIgnorePattern: '^_',
          destructuredArrayIgnorePattern: '^_',
          ignoreRestSiblings: true,
        },
      ],
    },
  },
  {
    files: ['**/*.ts', '**/*.mjs', '**/*.cjs'],
    rules: {
      eqeqeq: 'error',
      'max-lines': ['error', { max: 400, skipBlankLines: false, skipComments: false }],
    },
  },
  {
    files: ['services/**/*.ts', 'launcher/**/*.ts', 'scripts/**'],
    ignores: ['**/*.test.ts', '**/conformance.ts'],
    rules: { 'max-lines-per-function': ['error', { max: 70, skipComments: true }] },
  },
  {
    files: ['**/*.mjs', '**/*.cjs'],
    languageOptions: {
      globals: { process: 'readonly', console: 'readonly', module: 'writable', require: 'readonly', URL: 'readonly' },
    },
    rules: { '@typescript-eslint/no-require-imports': 'off', 'no-console': 'off' },
  },
  ...boundaries,
  environmentOnlyInMain,
);
