/* index.js: the module "caxton". */
export * from "caxton:sdk";
export { chat, conversation, converse } from "caxton:chat";
