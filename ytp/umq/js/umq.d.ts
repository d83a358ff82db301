/** UMQ in the browser: calls both ways, callbacks, topics, variables and attachments over one WebSocket. */

export declare const ErrorCode: {
  readonly DISCONNECTED: -1;
  readonly NONE: 0;
  readonly UNEXPECTED_BINARY: 1;
  readonly PARSE: 2;
  readonly UNKNOWN_TYPE: 3;
  readonly INTERNAL: 4;
  readonly VERSION: 5;
  readonly UNHANDLED: 6;
  readonly NO_METHOD: 7;
  readonly NO_CALLBACK: 8;
};

/** Base of what UMQ throws. */
export declare class UmqError extends Error {
  readonly code: number;
  constructor(code: number, message?: string);
}

/** The method or callback ran and failed. Throw one in a handler to send it. */
export declare class CallException extends UmqError {}

/** The method or callback was not run at all. */
export declare class ExecutionError extends UmqError {}

/** The connection is over; whether a call under way was run is not known. */
export declare class PeerDisconnected extends UmqError {
  constructor(code?: number, message?: string);
}

/** The connection ended because one side complained. */
export declare class GlobalError extends PeerDisconnected {}

/** The other side announced an attachment and could not get it. */
export declare class AttachmentError extends UmqError {
  constructor(text: string);
}

export declare function parseError(payload: string): [code: number, message: string];
export declare function formatError(code: number, message: string): string;

export interface Message {
  kind: string;
  id: string;
  name: string;
  payload: string;
  attachments: number;
}

/** Parses a text frame. Throws a GlobalError with code 2 or 3. */
export declare function parse(frame: string, maxAttachments?: number): Message;

/** The text frame of a message. Throws a TypeError for text that is not valid Unicode. */
export declare function encode(
  kind: string,
  id: string,
  payload?: string,
  name?: string,
  attachments?: number,
): string;

type Content = string | ArrayBuffer | ArrayBufferView | Blob | AsyncIterable<BlobPart>;

/** What can be attached. Functions are asked when it is their turn on the wire. */
export type AttachmentSource = Content | PromiseLike<Content> | (() => Content | PromiseLike<Content>);

/** Text and attachments. */
export declare class Payload<A = AttachmentSource> {
  text: string;
  attachments: A[];
  constructor(text?: string, attachments?: Iterable<A>);
  toString(): string;
  toJSON(): string;
}

/** What came from the other side: attachments are promises of their content. */
export type Received = Payload<Promise<Uint8Array>>;

/** A call as its handler sees it. */
export declare class Request extends Payload<Promise<Uint8Array>> {
  readonly peer: Peer;
  readonly id: string;
  readonly name: string;
}

export type Result = string | Payload<any> | null | undefined | void;
export type Handler = (request: Request) => Result | PromiseLike<Result>;
export type Target = Peer | ((request: Request) => Peer | null | undefined | PromiseLike<Peer | null | undefined>);

export interface Listing {
  methods: string[];
  routes: string[];
}

/** Methods by exact name, routes by prefix; one table can serve many peers. */
export declare class Services {
  method(name: string, handler: Handler, doc?: string): this;
  route(prefix: string, target: Target): this;
  remove(name: string): boolean;
  unroute(prefix: string): boolean;
  find(name: string): { handler: Handler; doc: string } | undefined;
  findRoute(name: string): [prefix: string, target: Target] | undefined;
  listing(): Listing;
}

export interface SubscribeOptions {
  /** Updates kept for a slow reader. Default 1024. */
  maxsize?: number;
  /** What a full queue does. Default "drop_oldest". */
  policy?: "drop_oldest" | "drop_newest" | "disconnect";
}

/** Updates of one topic. Iterate it with `for await`; leaving the loop unsubscribes. */
export declare class Subscription implements AsyncIterableIterator<Received> {
  readonly topic: string;
  /** Updates lost because the queue was full. */
  dropped: number;
  unsubscribe(): void;
  next(): Promise<IteratorResult<Received>>;
  return(): Promise<IteratorResult<Received>>;
  [Symbol.asyncIterator](): this;
}

export interface PublishOptions {
  /** Unsent bytes above which `policy` applies. Default 256 KiB. */
  hwm?: number;
  policy?: "skip" | "block" | "ignore" | "unsubscribe" | "close";
}

/** The publisher's end of one topic. */
export declare class Publication {
  readonly topic: string;
  readonly active: boolean;
  /** Updates dropped by the policy "skip". */
  skipped: number;
  onunsubscribe: (() => void) | null;
  /** Publishes an update; false when nobody wants any more. */
  send(data?: string | Payload<any>, options?: { attachments?: Iterable<AttachmentSource> }): Promise<boolean>;
  close(): void;
}

export interface CallOptions {
  attachments?: Iterable<AttachmentSource>;
  /** Gives up waiting; a late answer is ignored. */
  signal?: AbortSignal;
}

export interface ConnectOptions {
  /** What the server's hello hook gets: a token, a name... */
  hello?: string | Payload<any>;
  services?: Services;
  /** Variables set from the start. */
  local?: Record<string, string>;
  protocols?: string | string[];
  /** For the handshake, in milliseconds. Default 10,000. */
  timeout?: number;
}

/** One end of a connection; both ends are equal once the handshake is done. */
export declare class Peer {
  constructor(url: string, options?: ConnectOptions);
  readonly services: Services;
  /** Our variables; writing sends. */
  readonly local: Map<string, string>;
  /** Variables of the other side. */
  readonly remote: ReadonlyMap<string, string>;
  /** Anything that the page wants to remember with this connection; never sent. */
  readonly context: Record<string, unknown>;
  /** What the server said in its welcome. */
  readonly welcome: Received;
  /** Called when the other side changes a variable (undefined = deleted). */
  onvariable: ((name: string, value: string | undefined) => void) | null;
  /** Resolves at the end of the handshake; rejects with the reason of its failure. */
  readonly opened: Promise<Peer>;
  /** Resolves with the reason when the connection is over. Never rejects. */
  readonly closed: Promise<PeerDisconnected>;
  readonly isClosed: boolean;
  /** Bytes accepted for sending and not yet sent. */
  readonly buffered: number;
  /** Resolves when no more than `limit` bytes (default 256 KiB) are buffered, or the connection is over. */
  drain(limit?: number): Promise<void>;
  close(): void;
  call(name: string, data?: string | Payload<any>, options?: CallOptions): Promise<Received>;
  callCallback(id: string, data?: string | Payload<any>, options?: CallOptions): Promise<Received>;
  discover(query?: string, options?: Pick<CallOptions, "signal">): Promise<Listing | string>;
  method(name: string, handler: Handler, doc?: string): this;
  registerCallback(handler: Handler): string;
  unregisterCallback(id: string): boolean;
  callback(): { id: string; called: Promise<Request> };
  subscribe(topic?: string, options?: SubscribeOptions): Subscription;
  publish(topic: string, options?: PublishOptions): Publication;
}

/** Connects, relative to the page if need be, and resolves with the peer once the handshake is done. */
export declare function connect(url: string, options?: ConnectOptions): Promise<Peer>;

export interface ReconnectOptions extends ConnectOptions {
  /** First and longest delay between attempts, in milliseconds. Defaults 500 and 30,000. */
  initial?: number;
  maximum?: number;
}

/** A peer, and the next one whenever the loop body is through with it. */
export declare function reconnect(url: string, options?: ReconnectOptions): AsyncGenerator<Peer, never, void>;
