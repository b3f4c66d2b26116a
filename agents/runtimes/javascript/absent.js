/*
 * absent.js: stands for the packages that sucrase imports to check its options, to map
 * sources and to print positions. None of it happens here.
 */
const none = () => ({});

export default class {}
export class GenMapping {}
export const maybeAddSegment = none;
export const toEncodedMap = none;
export const createCheckers = () => ({ Options: { strictCheck: none } });
export const [array, iface, lit, opt, union] = [none, none, none, none, none];
