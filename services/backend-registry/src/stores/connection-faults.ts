/** The same for all that keeps an answer from coming: what it is would tell of the network behind. */
export const unreachable = 'The backend can not be reached, or did not answer in time.';

export const untrustedDetail = "The certificate of the backend's server is not trusted.";

/** Whether this code of Node or OpenSSL is that of a certificate which does not hold. */
export function isUntrusted(code: string): boolean {
  return /^[A-Z_]*(CERT|ERR_TLS_|UNABLE_TO_VERIFY)[A-Z_]*$/.test(code);
}
