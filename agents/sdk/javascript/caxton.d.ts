/*
 * The functions that a caxton_host agent or program in JavaScript can use. Besides
 * these it has only the language itself: it has no files and no fetch.
 */
declare module "caxton" {
  /**
   * A JSON value. An integer beyond Number.MAX_SAFE_INTEGER is received as a BigInt,
   * and a BigInt is sent as an integer of up to 64 bits.
   */
  export type Value =
    | null
    | boolean
    | number
    | bigint
    | string
    | Value[]
    | { [key: string]: Value };

  /** Parameters of a call, by name. Undefined values are omitted. */
  export type Params = { [name: string]: Value | undefined };

  /** The answer of a tool. */
  export interface Reply {
    status: "ok";
    /** A short text for people. */
    message: string;
    /** Its `content` blocks, and its `structuredContent` if there is one. */
    data: any;
  }

  /** The reason why a call has no reply; one of the four classes below. */
  export abstract class AgentError extends Error {
    status: "tool_error" | "denied" | "failed" | "bad_request";
    /** A code for programs: `not_granted`, `timeout`, ... */
    code: string;
    /** The answer of the tool, if it answered. */
    data: any;
  }
  /** The tool answered with an error. */
  export class ToolError extends AgentError {}
  /** The call was not sent: no rule allows it, one denies it, or a budget is spent. */
  export class Denied extends AgentError {}
  /** The call has no answer. It may have had an effect. */
  export class Failed extends AgentError {}
  /** The host could not read the call. */
  export class BadRequest extends AgentError {}

  /**
   * Call a tool by its exposed name.
   *
   * @throws {AgentError} The call has no reply.
   * @throws {TypeError} The parameters hold NaN, an infinity or themselves.
   */
  export function mcpCall(name: string, params?: Params): Reply;

  /**
   * Make up to 64 calls at once. The outcome of a failed call is its error, which is
   * returned and not thrown; it does not affect the other calls.
   *
   * @throws {BadRequest} The batch has more than 64 calls or more than 1 MiB.
   */
  export function mcpCallMany(
    calls: Iterable<readonly [name: string, params?: Params]>,
  ): (Reply | AgentError)[];

  export interface Tool {
    name: string;
    description: string;
    input_schema: any;
  }

  /** A tool that `tools.search` found; `call` is how it is called. */
  export interface Found extends Tool {
    call: string;
  }

  /** A granted tool as a function of its arguments. */
  export interface TypedTool {
    /**
     * Resolves to the structured content of the answer, or to its text. Calls that
     * wait together are sent as one batch.
     *
     * @throws {AgentError} The call has no reply.
     * @throws {TypeError} The schema has no such argument, or requires another.
     */
    (args?: Params): Promise<any>;
  }

  /**
   * The granted tools: a list if it is called, `tools.SERVER.TOOL({...})` for each of
   * them, and a search by words.
   */
  export const tools: {
    (): Tool[];
    search(words: string): Found[];
    [server: string]: any;
  };

  /** A message of a conversation with a language model. */
  export interface Message {
    role: string;
    content?: any;
    /** The calls that the model requests. */
    tool_calls?: any[];
    [key: string]: any;
  }

  export interface ChatSettings {
    /**
     * Tools that the model may request: granted ones; for `chat`, also definitions of
     * your own, `{type: "function", function: {...}}`.
     */
    tools?: Iterable<Tool | { type: "function"; function: any }>;
    /** The exposed name of the model; `chat` by default. */
    via?: string;
    /** Further parameters, such as `model` or `temperature`. */
    [option: string]: any;
  }

  /**
   * Send a conversation to a language model, and return its message. Append it to the
   * messages before the next chat.
   *
   * @throws {ToolError} The model answered with an error, or (`bad_answer`) its answer
   *   is not a message.
   * @throws {AgentError} As `mcpCall`.
   */
  export function chat(messages: Iterable<Message>, settings?: ChatSettings): Message;

  /**
   * Chat, make the calls that the model requests, and return its last message. Every
   * message and every answer of a tool is appended to `messages`. The calls of one
   * message are made together. The model is told about each error, and can continue
   * without that call. By default it may request every granted tool but itself.
   *
   * @throws {ToolError} As `chat`, or (`rounds`) the model still requests calls in the
   *   last round.
   * @throws {AgentError} As `mcpCall`.
   */
  export function converse(
    messages: Message[],
    settings?: ChatSettings & {
      tools?: Iterable<Tool>;
      /** How often the model is asked at most; 8 by default. */
      rounds?: number;
      /** Characters of one answer that the model is told; 16,000 by default. */
      most?: number;
    },
  ): Message;

  /**
   * The messages of the run that this one continues, with the last answer; empty if it
   * continues none. Append to them, and chat.
   *
   * @throws {ToolError} (`bad_answer`) The last answer is not a message.
   */
  export function conversation(settings?: { via?: string }): Message[];

  /** A content block with an image, for `output({ $content: [image(png)] })`. */
  export function image(bytes: Uint8Array, mimeType?: string): Params;

  /** The input of the run; null by default. */
  export function input(): any;

  /** A variable of the run; undefined if the run has no such variable. */
  export function context(key: string): any;

  /**
   * Set the output of the run. The last value counts; a value that `run` returns
   * replaces it.
   */
  export function output(value: Value | Params): void;

  /** Time of the last recorded reply, or of the start: microseconds since 1970. */
  export function now(): number;

  /** A number of at least 0 and below 1. A replay returns the same. */
  export function random(): number;

  /** Random bytes. A replay returns the same. */
  export function randomBytes(size: number): Uint8Array;

  /** Write a line to the run's log. */
  export const log: Record<
    "debug" | "info" | "warning" | "error",
    (line: string) => void
  >;
}

/** Writes lines to the run's log. */
declare const console: Record<
  "debug" | "log" | "info" | "warn" | "error",
  (...values: unknown[]) => void
>;

/** Milliseconds by the clock of `now`, since its first use. */
declare const performance: { now(): number; readonly timeOrigin: number };

/** Uses the random numbers of the run; do not use it for secrets. */
declare const crypto: {
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): string;
};

/** Time jumps to the next timer when only timers wait. */
declare function setTimeout<T extends any[]>(
  action: (...values: T) => void,
  milliseconds?: number,
  ...values: T
): number;
declare function setInterval<T extends any[]>(
  action: (...values: T) => void,
  milliseconds?: number,
  ...values: T
): number;
declare function clearTimeout(timer: number | undefined): void;
declare function clearInterval(timer: number | undefined): void;
declare function queueMicrotask(action: () => void): void;

declare function atob(text: string): string;
declare function btoa(text: string): string;
