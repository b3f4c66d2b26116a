/* index.js: the module "caxton". */
export * from "caxton:sdk";
export { chat, converse } from "caxton:chat";
