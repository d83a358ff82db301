// UMQ in the browser: calls both ways, callbacks, topics, variables and attachments over one WebSocket.
//
//   import { connect } from "/umq.js";
//   const peer = await connect("/ws");
//   console.log(String(await peer.call("greet", "world")));
//
// One module without dependencies; types are in umq.d.ts. It needs nothing but WebSocket, so it also runs in
// workers, Deno and Node.

const VERSION = "1.0.0";
const MAX_ATTACHMENTS = 1024;
const MAX_PENDING_ATTACHMENTS = 16384;
const HIGH_WATER = 256 * 1024;

const TYPES = new Set("!?-CEHMRSTUWXZ");
const NAMED = new Set("MC");
const WITHOUT_PAYLOAD = new Set("UZX");
const EMPTY_ID_ALLOWED = new Set("E!HW");
const REPLIES = new Set("RE!");

// --- errors

export const ErrorCode = Object.freeze({
  DISCONNECTED: -1, NONE: 0, UNEXPECTED_BINARY: 1, PARSE: 2, UNKNOWN_TYPE: 3, INTERNAL: 4, VERSION: 5,
  UNHANDLED: 6, NO_METHOD: 7, NO_CALLBACK: 8,
});

const TEXTS = {
  [-1]: "Peer disconnected", 0: "No error", 1: "Unexpected binary frame", 2: "Message parse error",
  3: "Unknown message type", 4: "Internal node error while processing a message", 5: "Unsupported version",
  6: "Unhandled exception", 7: "Method not found", 8: "Callback not registered",
};

export class UmqError extends Error {
  constructor(code, message = TEXTS[code] ?? "") {
    super(message);
    this.name = new.target.name;
    this.code = code;
  }
}

/** The method or callback ran and failed. Throw one in a handler to send it. */
export class CallException extends UmqError {}

/** The method or callback was not run at all. */
export class ExecutionError extends UmqError {}

/** The connection is over. */
export class PeerDisconnected extends UmqError {
  constructor(code = ErrorCode.DISCONNECTED, message = undefined) {
    super(code, message);
  }
}

/** The connection ended because one side complained. */
export class GlobalError extends PeerDisconnected {}

/** The other side announced an attachment and could not get it. */
export class AttachmentError extends UmqError {
  constructor(text) {
    super(ErrorCode.NONE, text);
  }
}

/** `[code, message]` of an error payload; code 0 when it does not begin with a number. */
export function parseError(payload) {
  const match = /^\s*([+-]?[0-9]{1,15})(?:\s+([^]*))?\s*$/.exec(payload);
  return match ? [Number(match[1]), (match[2] ?? "").trim()] : [0, payload.trim()];
}

export function formatError(code, message) {
  return code ? `${code} ${message}` : message;
}

function errorText(error) {
  if (error instanceof UmqError) return formatError(error.code, error.message);
  return wellFormed((error instanceof Error && error.message) || String(error));
}

// --- text frames

/** Parses a text frame. Throws a GlobalError with code 2 or 3. */
export function parse(frame, maxAttachments = MAX_ATTACHMENTS) {
  let start = 0;
  let attachments = 0;
  while (frame[start] === "A") {
    const end = frame.indexOf("\n", start);
    const digits = frame.slice(start + 1, end < 0 ? start + 33 : end);
    if (end < 0 || end + 1 === frame.length || !/^[0-9]+$/.test(digits)) throw new GlobalError(ErrorCode.PARSE);
    attachments += digits.length <= 20 ? Number(digits) : Infinity;
    if (attachments > maxAttachments) throw new GlobalError(ErrorCode.PARSE);
    start = end + 1;
  }
  const kind = frame[start];
  if (kind === undefined || kind === "\n") throw new GlobalError(ErrorCode.PARSE);
  if (!TYPES.has(kind)) throw new GlobalError(ErrorCode.UNKNOWN_TYPE);
  let [id, payload] = cut(frame, start + 1);
  let name = "";
  if (kind === "-") {
    if (start) throw new GlobalError(ErrorCode.PARSE);
    return { kind, id: "", name, payload: payload || id, attachments };
  }
  if (!id && !EMPTY_ID_ALLOWED.has(kind)) throw new GlobalError(ErrorCode.PARSE);
  if ((kind === "S" || kind === "X") && hasControl(id)) throw new GlobalError(ErrorCode.PARSE);
  if (NAMED.has(kind)) [name, payload] = cut(payload, 0);
  else if (WITHOUT_PAYLOAD.has(kind)) payload = "";
  return { kind, id, name, payload, attachments };
}

/** The text frame of a message; line feeds are always there. */
export function encode(kind, id, payload = "", name = "", attachments = 0) {
  let frame = kind + id;
  if (NAMED.has(kind)) frame += `\n${name}\n${payload}`;
  else if (!WITHOUT_PAYLOAD.has(kind)) frame += `\n${payload}`;
  if (/\p{Surrogate}/u.test(frame)) throw new TypeError("text is not valid Unicode");
  return attachments ? `A${attachments}\n${frame}` : frame;
}

function cut(text, start) {
  const end = text.indexOf("\n", start);
  return end < 0 ? [text.slice(start), ""] : [text.slice(start, end), text.slice(end + 1)];
}

function hasControl(name) {
  return /[\0-\x1f]/.test(name);
}

function wellFormed(text) {
  return text.replace(/\p{Surrogate}/gu, "\ufffd");
}

function checkName(what, name, mayBeEmpty = false) {
  if (typeof name !== "string" || (!name && !mayBeEmpty)) throw new TypeError(`${what} is empty`);
  if (name.includes("\n")) throw new TypeError(`${what} contains a line feed`);
}

// --- what travels

/** Text and attachments. Received attachments are promises of a Uint8Array. */
export class Payload {
  constructor(text = "", attachments = []) {
    this.text = String(text);
    this.attachments = [...attachments];
  }

  toString() {
    return this.text;
  }

  toJSON() {
    return this.text;
  }
}

/** A call as its handler sees it. */
export class Request extends Payload {
  constructor(peer, id, name, text, attachments) {
    super(text, attachments);
    this.peer = peer;
    this.id = id;
    this.name = name;
  }
}

async function contentOf(source) {
  if (typeof source === "function") source = source();
  source = await source;
  if (typeof source === "string") return new TextEncoder().encode(source);
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source;
  if (typeof Blob !== "undefined" && source instanceof Blob) return source.arrayBuffer();
  if (source?.[Symbol.asyncIterator]) {
    const chunks = [];
    for await (const chunk of source) chunks.push(chunk);
    return new Blob(chunks).arrayBuffer();
  }
  throw new TypeError("an attachment must be binary data or text");
}

// --- what a peer offers

/** Methods by exact name, routes by prefix; one table can serve many peers. */
export class Services {
  #methods = new Map();
  #routes = new Map();

  /** Serves `name` by `handler(request)`, which returns text, a Payload, nothing, or a promise of these. */
  method(name, handler, doc = "") {
    checkName("method name", name);
    this.#methods.set(name, { handler, doc });
    return this;
  }

  /** Forwards what begins with `prefix` to a peer, or to the one that `target(request)` chooses. */
  route(prefix, target) {
    checkName("route", prefix);
    this.#routes.set(prefix, target);
    return this;
  }

  remove(name) {
    return this.#methods.delete(name);
  }

  unroute(prefix) {
    return this.#routes.delete(prefix);
  }

  find(name) {
    return this.#methods.get(name);
  }

  /** `[prefix, target]` of the longest prefix of `name`. */
  findRoute(name) {
    let found;
    for (const route of this.#routes) {
      if (name.startsWith(route[0]) && route[0].length > (found?.[0].length ?? 0)) found = route;
    }
    return found;
  }

  listing() {
    return { methods: [...this.#methods.keys()], routes: [...this.#routes.keys()] };
  }
}

// --- topics

/** Updates of one topic. Iterate it with `for await`; leaving the loop unsubscribes. */
export class Subscription {
  #unsubscribe;
  #maxsize;
  #policy;
  #updates = [];
  #waiters = [];
  #ended = false;
  #error = null;
  dropped = 0;

  constructor(topic, { maxsize = 1024, policy = "drop_oldest" }, unsubscribe) {
    if (!["drop_oldest", "drop_newest", "disconnect"].includes(policy)) throw new TypeError(`policy ${policy}`);
    this.topic = topic;
    this.#maxsize = maxsize;
    this.#policy = policy;
    this.#unsubscribe = unsubscribe;
  }

  unsubscribe() {
    this.#unsubscribe();
    this._end(null);
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  async next() {
    while (!this.#updates.length && !this.#ended) {
      await new Promise((resolve) => this.#waiters.push(resolve));
    }
    if (this.#updates.length) return { value: this.#updates.shift(), done: false };
    if (this.#error) throw this.#error;
    return { value: undefined, done: true };
  }

  async return() {
    this.unsubscribe();
    return { value: undefined, done: true };
  }

  _update(payload) {
    if (this.#updates.length >= this.#maxsize) {
      this.dropped += 1;
      if (this.#policy === "drop_newest") return;
      if (this.#policy === "disconnect") {
        this.#unsubscribe();
        this._end(new Error("the queue of the subscription is full"));
        return;
      }
      this.#updates.shift();
    }
    this.#updates.push(payload);
    this.#wake();
  }

  _end(error) {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake();
  }

  #wake() {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}

/** The publisher's end of one topic. */
export class Publication {
  #peer;
  #hwm;
  #policy;
  #end;
  active = true;
  skipped = 0;
  onunsubscribe = null;

  constructor(peer, topic, { hwm = HIGH_WATER, policy = "skip" }, end) {
    if (!["skip", "block", "ignore", "unsubscribe", "close"].includes(policy)) throw new TypeError(`policy ${policy}`);
    this.topic = topic;
    this.#peer = peer;
    this.#hwm = hwm;
    this.#policy = policy;
    this.#end = end;
  }

  /** Publishes an update; false when nobody wants any more. */
  async send(data = "", { attachments = [] } = {}) {
    if (this.active && this.#policy !== "ignore" && this.#peer.buffered > this.#hwm) {
      if (this.#policy === "skip") {
        this.skipped += 1;
        return true;
      }
      if (this.#policy === "block") await this.#peer.drain(this.#hwm);
      else if (this.#policy === "unsubscribe") this.close();
      else this.#peer.close();
    }
    if (this.active) this.#peer._send("T", this.topic, data, "", attachments);
    return this.active;
  }

  close() {
    if (!this.active) return;
    this.#end();
    this._end();
  }

  _end() {
    if (!this.active) return;
    this.active = false;
    runHook(this.onunsubscribe);
  }
}

// --- variables

/** Our variables: writing sends, and only real changes do. */
class LocalVariables extends Map {
  #send;

  constructor(values, send) {
    super();
    for (const [name, value] of Object.entries(values)) this.set(name, value);
    this.#send = send;
  }

  set(name, value) {
    checkName("variable name", name);
    if (hasControl(name)) throw new TypeError("variable name contains a control character");
    value = String(value);
    if (this.get(name) !== value) {
      const frame = encode("S", name, value);
      super.set(name, value);
      this.#send?.(frame);
    }
    return this;
  }

  delete(name) {
    const existed = super.delete(name);
    if (existed) this.#send?.(encode("X", name));
    return existed;
  }

  clear() {
    for (const name of [...this.keys()]) this.delete(name);
  }
}

/** Variables of the other side. */
class RemoteVariables {
  #map;

  constructor(map) {
    this.#map = map;
  }

  get size() {
    return this.#map.size;
  }

  get(name) {
    return this.#map.get(name);
  }

  has(name) {
    return this.#map.has(name);
  }

  keys() {
    return this.#map.keys();
  }

  values() {
    return this.#map.values();
  }

  entries() {
    return this.#map.entries();
  }

  forEach(fn) {
    this.#map.forEach((value, name) => fn(value, name, this));
  }

  [Symbol.iterator]() {
    return this.#map.entries();
  }
}

// --- the peer

/** One end of a connection; made by `connect`. */
export class Peer {
  #socket;
  #state = "connecting";
  #error = null;
  #opened = deferred();
  #closed = deferred();
  #nextId = 0;
  #nextTopic = 0;
  #requests = new Map();
  #callbacks = new Map();
  #subscriptions = new Map();
  #publications = new Map();
  #remote = new Map();
  #awaited = [];
  #sources = [];
  #sending = false;

  constructor(url, { hello = "", services = new Services(), local = {}, protocols = [], timeout = 10_000 } = {}) {
    this.services = services;
    this.context = {};
    this.welcome = new Payload();
    this.onvariable = null;
    this.local = new LocalVariables(local, (frame) => this.#isOpen && this.#socket.send(frame));
    this.remote = new RemoteVariables(this.#remote);
    this.#socket = new WebSocket(url, protocols);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => this.#send("H", VERSION, hello);
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code }) => this.#end(new PeerDisconnected(), code === 1000 || code === 1001 || code === 1005);
    const timer = setTimeout(() => {
      if (this.#state === "connecting") this.#complain(ErrorCode.INTERNAL, "Handshake timeout");
    }, timeout);
    this.#opened.promise.catch(() => {}).finally(() => clearTimeout(timer));
  }

  /** Resolves at the end of the handshake; rejects with the reason of its failure. */
  get opened() {
    return this.#opened.promise;
  }

  /** Resolves with the reason when the connection is over. Never rejects. */
  get closed() {
    return this.#closed.promise;
  }

  get isClosed() {
    return this.#state === "closed";
  }

  /** Bytes accepted for sending and not yet sent. */
  get buffered() {
    return this.#socket.bufferedAmount;
  }

  /** Resolves when no more than `limit` bytes are buffered. */
  async drain(limit = HIGH_WATER) {
    // Browsers tell how much is buffered, but not when that changes.
    while (!this.isClosed && this.buffered > limit) await new Promise((resolve) => setTimeout(resolve, 5));
  }

  close() {
    this.#end(new PeerDisconnected(), true);
    this.#socket.close(1000);
  }

  // --- calls

  /** Calls a method; resolves with its Payload. `signal` gives up waiting, e.g. `AbortSignal.timeout(1000)`. */
  async call(name, data = "", options = {}) {
    checkName("method name", name, true);
    return this.#ask("M", data, name, options);
  }

  /** Calls a callback of the other side; it can be called once. */
  async callCallback(id, data = "", options = {}) {
    checkName("callback id", id, true);
    return this.#ask("C", data, id, options);
  }

  /** `{ methods, routes }` for nothing and for routes, documentation text for methods. */
  async discover(query = "", options = {}) {
    const { text } = await this.#ask("?", query, "", options);
    if (text.startsWith("D")) return text.slice(1);
    const names = (prefix) => text.split("\n").flatMap((line) => (line.startsWith(prefix) ? [line.slice(1)] : []));
    return { methods: names("M"), routes: names("R") };
  }

  method(name, handler, doc = "") {
    this.services.method(name, handler, doc);
    return this;
  }

  /** An id that the other side may call, once. */
  registerCallback(handler) {
    this.#throwIfClosed();
    const id = `${this.#nextId++}_cb`;
    this.#callbacks.set(id, { handler });
    return id;
  }

  unregisterCallback(id) {
    return this.#callbacks.delete(id);
  }

  /** `{ id, called }`: pass the id to the other side and await `called`, the request it makes. */
  callback() {
    const { promise, resolve, reject } = deferred();
    promise.catch(() => {});
    const id = this.registerCallback((request) => resolve(request));
    this.#callbacks.get(id).lost = reject;
    return { id, called: promise };
  }

  // --- topics

  /** Listens to a topic from now on; then ask the publisher to begin by a call. */
  subscribe(topic = `${this.#nextTopic++}_topic`, options = {}) {
    this.#throwIfClosed();
    checkName("topic", topic);
    if (this.#subscriptions.has(topic)) throw new TypeError(`topic ${topic} is subscribed already`);
    const subscription = new Subscription(topic, options, () => {
      if (this.#subscriptions.get(topic) !== subscription) return;
      this.#subscriptions.delete(topic);
      this.#send("U", topic);
    });
    this.#subscriptions.set(topic, subscription);
    return subscription;
  }

  /** Begins to publish; `policy` says what happens above `hwm` unsent bytes. */
  publish(topic, options = {}) {
    this.#throwIfClosed();
    checkName("topic", topic);
    if (this.#publications.has(topic)) throw new TypeError(`topic ${topic} is published already`);
    const publication = new Publication(this, topic, options, () => {
      this.#publications.delete(topic);
      this.#send("Z", topic);
    });
    this.#publications.set(topic, publication);
    return publication;
  }

  // --- sending

  get #isOpen() {
    return this.#state === "open";
  }

  #throwIfClosed() {
    if (this.isClosed) throw this.#lostError();
  }

  /** A fresh error for everybody who has to be told. */
  #lostError() {
    return new this.#error.constructor(this.#error.code, this.#error.message);
  }

  _send(kind, id, data, name, attachments) {
    this.#send(kind, id, data, name, attachments);
  }

  #send(kind, id, data = "", name = "", attachments = []) {
    if (this.isClosed) return;
    const sources = data instanceof Payload ? [...data.attachments, ...attachments] : [...attachments];
    this.#socket.send(encode(kind, id, String(data), name, sources.length));
    // One that fails before its turn is not an accident.
    for (const source of sources) source?.catch?.(() => {});
    this.#sources.push(...sources);
    if (this.#sources.length && !this.#sending) this.#sendAttachments();
  }

  /** Contents go out strictly in order of announcement, however long the first one takes. */
  async #sendAttachments() {
    this.#sending = true;
    while (this.#sources.length && !this.isClosed) {
      let frame;
      try {
        frame = await contentOf(this.#sources.shift());
      } catch (error) {
        frame = encode("-", "", errorText(error));
      }
      if (this.isClosed) break;
      this.#socket.send(frame);
      await this.drain();
    }
    this.#sending = false;
  }

  async #ask(kind, data, name, { attachments = [], signal } = {}) {
    const reply = await this._request(kind, data, name, attachments, signal);
    const [code, message] = parseError(reply.payload);
    if (reply.kind === "R") return new Payload(reply.payload, reply.attachments);
    throw new (reply.kind === "E" ? CallException : ExecutionError)(code, message);
  }

  async _request(kind, data, name, attachments, signal) {
    signal?.throwIfAborted();
    this.#throwIfClosed();
    if (!this.#isOpen) throw new TypeError("the handshake is not done yet");
    const id = String(this.#nextId++);
    const answer = deferred();
    this.#send(kind, id, data, name, attachments);
    this.#requests.set(id, answer);
    const giveUp = () => {
      this.#requests.delete(id);
      answer.reject(signal.reason);
    };
    signal?.addEventListener("abort", giveUp, { once: true });
    try {
      return await answer.promise;
    } finally {
      signal?.removeEventListener("abort", giveUp);
    }
  }

  // --- receiving

  #receive(data) {
    if (this.isClosed) return;
    try {
      if (typeof data === "string") this.#receiveText(parse(data));
      else this.#nextAwaited().resolve(new Uint8Array(data));
    } catch (error) {
      if (error instanceof GlobalError) this.#complain(error.code, error.message);
      else this.#complain(ErrorCode.INTERNAL);
    }
  }

  #nextAwaited() {
    if (!this.#awaited.length) throw new GlobalError(ErrorCode.UNEXPECTED_BINARY);
    return this.#awaited.shift();
  }

  #announce(count) {
    if (this.#awaited.length + count > MAX_PENDING_ATTACHMENTS) throw new GlobalError(ErrorCode.PARSE);
    return Array.from({ length: count }, () => {
      const { promise, resolve, reject } = deferred();
      promise.catch(() => {});
      this.#awaited.push({ resolve, reject });
      return promise;
    });
  }

  #receiveText(message) {
    const { kind, id, name, payload } = message;
    if (kind === "-") {
      this.#nextAwaited().reject(new AttachmentError(payload));
      return;
    }
    if (!id && (kind === "E" || kind === "!")) {
      this.#end(new GlobalError(...parseError(payload)), false);
      this.#socket.close(1000);
      return;
    }
    const attachments = this.#announce(message.attachments);
    if (kind === "H") throw new GlobalError(ErrorCode.UNKNOWN_TYPE);
    if (kind === "W") this.#welcome(id, payload, attachments);
    else if (!this.#isOpen) throw new GlobalError(ErrorCode.INTERNAL, "Welcome required");
    else if (REPLIES.has(kind)) this.#take(this.#requests, id)?.resolve({ kind, payload, attachments });
    else if (kind === "M") this.#serve(id, () => this.#runMethod(id, name, payload, attachments));
    else if (kind === "C") this.#serve(id, () => this.#runCallback(id, name, payload, attachments));
    else if (kind === "?") this.#serve(id, () => this.#answerDiscovery(id, payload.replace(/^\n+|\n+$/g, "")));
    else if (kind === "T") this.#update(id, new Payload(payload, attachments));
    else if (kind === "Z") this.#take(this.#subscriptions, id)?._end(null);
    else if (kind === "U") this.#take(this.#publications, id)?._end();
    else this.#setRemote(id, kind === "S" ? payload : undefined);
  }

  #take(map, key) {
    const value = map.get(key);
    map.delete(key);
    return value;
  }

  #welcome(version, payload, attachments) {
    if (version !== VERSION) throw new GlobalError(ErrorCode.VERSION);
    if (this.#isOpen) return;
    this.#state = "open";
    this.welcome = new Payload(payload, attachments);
    for (const [name, value] of this.local) this.#send("S", name, value);
    this.#opened.resolve(this);
  }

  #update(topic, payload) {
    const subscription = this.#subscriptions.get(topic);
    if (subscription) subscription._update(payload);
    else this.#send("U", topic);
  }

  #setRemote(name, value) {
    if (this.#remote.get(name) === value) return;
    if (value === undefined) this.#remote.delete(name);
    else this.#remote.set(name, value);
    runHook(this.onvariable, name, value);
  }

  // --- serving

  /** Runs a request to its one answer. `run` gives a result, a whole reply (from a route), or throws. */
  async #serve(id, run) {
    let kind = "R";
    let data = "";
    try {
      const result = await run();
      if (result?.forwarded) [kind, data] = [result.kind, new Payload(result.payload, result.attachments)];
      else if (typeof result === "string" || result instanceof Payload) data = result;
      else if (result !== undefined && result !== null) throw new TypeError("a handler returns text or a Payload");
      this.#send(kind, id, data);
    } catch (error) {
      const known = error instanceof CallException || error instanceof ExecutionError;
      if (!known) console.error("UMQ handler failed", error);
      const text = errorText(error);
      this.#send(error instanceof ExecutionError ? "!" : "E", id, known ? text : formatError(ErrorCode.UNHANDLED, text));
    }
  }

  #runMethod(id, name, payload, attachments) {
    const request = new Request(this, id, name, payload, attachments);
    const method = this.services.find(name);
    if (method) return method.handler(request);
    const route = this.services.findRoute(name);
    if (!route) throw new ExecutionError(ErrorCode.NO_METHOD);
    return this.#forward("M", route, request, payload, name.slice(route[0].length));
  }

  #runCallback(id, name, payload, attachments) {
    const callback = this.#take(this.#callbacks, name);
    if (!callback) throw new ExecutionError(ErrorCode.NO_CALLBACK);
    return callback.handler(new Request(this, id, name, payload, attachments));
  }

  #answerDiscovery(id, query) {
    if (!query) {
      const { methods, routes } = this.services.listing();
      return [...methods.map((name) => `M${name}\n`), ...routes.map((name) => `R${name}\n`)].join("");
    }
    const method = this.services.find(query);
    if (method) return `D${method.doc}`;
    const route = this.services.findRoute(query);
    if (!route) throw new CallException(ErrorCode.NO_METHOD);
    return this.#forward("?", route, new Request(this, id, query, "", []), query.slice(route[0].length), "");
  }

  /** Passes a request on as it is, and its answer back, attachments as they come. */
  async #forward(kind, [, target], request, data, name) {
    const peer = typeof target === "function" ? await target(request) : target;
    if (!peer || !peer.#isOpen) throw new ExecutionError(ErrorCode.DISCONNECTED);
    try {
      return { forwarded: true, ...(await peer._request(kind, data, name, request.attachments)) };
    } catch {
      // It was sent, so it may have run.
      throw new CallException(ErrorCode.DISCONNECTED);
    }
  }

  // --- the end

  #complain(code, message = TEXTS[code]) {
    if (this.isClosed) return;
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(encode("E", "", formatError(code, message)));
    this.#end(new GlobalError(code, message), false);
    this.#socket.close(3002, "protocol error"); // pages may not say 1002
  }

  #end(error, clean) {
    if (this.isClosed) return;
    this.#state = "closed";
    this.#error = error;
    this.#opened.reject(error);
    for (const answer of this.#requests.values()) answer.reject(this.#lostError());
    for (const attachment of this.#awaited) attachment.reject(this.#lostError());
    for (const subscription of this.#subscriptions.values()) subscription._end(clean ? null : this.#lostError());
    for (const publication of this.#publications.values()) publication._end();
    for (const { lost } of this.#callbacks.values()) lost?.(this.#lostError());
    for (const map of [this.#requests, this.#subscriptions, this.#publications, this.#callbacks, this.#remote]) map.clear();
    this.#awaited = [];
    this.#sources = [];
    this.#closed.resolve(error);
  }
}

function deferred() {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
}

function runHook(hook, ...values) {
  try {
    hook?.(...values);
  } catch (error) {
    console.error("UMQ hook failed", error);
  }
}

// --- connecting

function absolute(url) {
  const base = typeof location === "undefined" ? undefined : location.href;
  return new URL(url, base).href.replace(/^http/, "ws");
}

/** Connects, relative to the page if need be, and resolves with the peer once the handshake is done. */
export async function connect(url, options = {}) {
  const peer = new Peer(absolute(url), options);
  await peer.opened;
  return peer;
}

/**
 * A peer, and the next one whenever the loop body is through with it:
 *
 *   for await (const peer of reconnect("/ws")) { ...; await peer.closed; }
 *
 * A server that refuses our hello ends the loop with its error.
 */
export async function* reconnect(url, { initial = 500, maximum = 30_000, ...options } = {}) {
  let delay = initial;
  for (;;) {
    let peer;
    try {
      peer = await connect(url, options);
    } catch (error) {
      if (error instanceof GlobalError) throw error;
      await new Promise((resolve) => setTimeout(resolve, delay * (0.5 + Math.random() / 2)));
      delay = Math.min(maximum, delay * 2);
      continue;
    }
    delay = initial;
    try {
      yield peer;
    } finally {
      peer.close();
    }
  }
}
