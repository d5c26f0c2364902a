/** Elements of the page. */

export const byId = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;

/** Make an element. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  values: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
}
