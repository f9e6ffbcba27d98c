/** The keys of a Secret, in base64 as Kubernetes has them. */
export type SecretData = Readonly<Record<string, string>>;

/** A Secret as it was at some moment; `data` is null where there is none of that name. */
export interface SeenSecret {
  data: SecretData | null;
  /** Where a watch goes on. */
  version: string;
}

/** What is asked of Kubernetes about Secrets of one namespace. */
export interface SecretApi {
  /** Throws for an answer that is no answer, or takes too long. */
  look(name: string, signal: AbortSignal): Promise<SeenSecret>;
  /** Tells of each change since a version; ends when the server or the network ends it. Throws for a refusal. */
  watch(name: string, version: string, tell: (data: SecretData | null) => void, signal: AbortSignal): Promise<void>;
}
