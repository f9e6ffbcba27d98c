/** What a user name looks like; in headers, logs and addresses it needs no escape. */
export const usernamePattern = '^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$';
