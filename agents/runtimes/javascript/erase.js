/* erase.js: TypeScript to JavaScript, on the same lines. */
import { transform } from "sucrase";

export const erase = (source) =>
  transform(source, { transforms: ["typescript"], disableESTransforms: true }).code;
