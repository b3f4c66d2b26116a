/*
 * What an agent for caxton_host in JavaScript can use. It needs nothing else: what
 * is not here and not in the language itself, such as timers, files and fetch, it
 * does not have.
 */
declare module "caxton" {
  /**
   * What JSON can say. A whole number beyond Number.MAX_SAFE_INTEGER comes as a
   * BigInt, and a BigInt goes as a whole number of up to 64 bits.
   */
  export type Value =
    | null
    | boolean
    | number
    | bigint
    | string
    | Value[]
    | { [key: string]: Value };

  /** Parameters of a call, by name. One that is undefined is left out. */
  export type Params = { [name: string]: Value | undefined };

  /** What a tool answered. */
  export interface Reply {
    status: "ok";
    /** A short text for people. */
    message: string;
    /** Its `content` blocks, and its `structuredContent` if there is one. */
    data: any;
  }

  /** Why there is no reply; one of the four classes below. */
  export abstract class AgentError extends Error {
    status: "tool_error" | "denied" | "failed" | "bad_request";
    /** A word for programs: `not_granted`, `timeout`, ... */
    code: string;
    /** What the tool answered with, if it answered. */
    data: any;
  }
  /** The tool answered that it failed. */
  export class ToolError extends AgentError {}
  /** Nothing was sent: no rule allows it, one forbids it, or its budget is spent. */
  export class Denied extends AgentError {}
  /** There is no answer. The call may have had an effect. */
  export class Failed extends AgentError {}
  /** The host could not read the call. */
  export class BadRequest extends AgentError {}

  /**
   * Call a tool, by the name that the agent knows it by.
   *
   * @throws {AgentError} There is no reply.
   * @throws {TypeError} The parameters hold NaN, an infinity or themselves.
   */
  export function mcpCall(name: string, params?: Params): Reply;

  /**
   * Make up to 64 calls at once. A call that went wrong has its error in the place of
   * its reply; it is not thrown, and the others are as they would be without it.
   *
   * @throws {BadRequest} There are too many calls, or more than 1 MiB of them.
   */
  export function mcpCallMany(
    calls: Iterable<readonly [name: string, params?: Params]>,
  ): (Reply | AgentError)[];

  export interface Tool {
    name: string;
    description: string;
    input_schema: any;
  }

  /** The tools that are granted. */
  export function tools(): Tool[];

  /** What the run was started with; null if with nothing. */
  export function input(): any;

  /** A variable of the run; undefined if it has none of that name. */
  export function context(key: string): any;

  /**
   * Set the result of the run. The last one counts, and what `run` returns is the
   * last of all.
   */
  export function output(value: Value | Params): void;

  /** Microseconds since 1970: when the last reply was recorded, or the run started. */
  export function now(): number;

  /** A number from 0 up to, but not, 1. A replay gets the same. */
  export function random(): number;

  /** Random bytes. A replay gets the same. */
  export function randomBytes(size: number): Uint8Array;

  /** Write a line to the run's log. */
  export const log: Record<
    "debug" | "info" | "warning" | "error",
    (line: string) => void
  >;
}

/** Lines of the run's log. */
declare const console: Record<
  "debug" | "log" | "info" | "warn" | "error",
  (...values: unknown[]) => void
>;

/** Milliseconds by the clock of `now`, from the first time that it is asked. */
declare const performance: { now(): number; readonly timeOrigin: number };

/** From the random numbers of the run: no secret is safe with them. */
declare const crypto: {
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  randomUUID(): string;
};

declare function atob(text: string): string;
declare function btoa(text: string): string;
