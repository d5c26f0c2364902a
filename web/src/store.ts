/** What the page keeps: in the browser's private storage for this address, and nowhere else. */

/** Values by name. */
export interface Store {
  get<T>(key: string): Promise<T | undefined>;
  set(key: string, value: unknown): Promise<void>;
  delete(key: string): Promise<void>;
  keys(prefix: string): Promise<string[]>;
}

const done = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

/** Open a store in IndexedDB. */
export async function browserStore(name: string): Promise<Store> {
  const opening = indexedDB.open(name, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore("values");
  const database = await done(opening);
  const values = (mode: IDBTransactionMode): IDBObjectStore => database.transaction("values", mode).objectStore("values");
  return {
    get: async <T>(key: string) => (await done(values("readonly").get(key))) as T | undefined,
    set: async (key, value) => void (await done(values("readwrite").put(value, key))),
    delete: async (key) => void (await done(values("readwrite").delete(key))),
    keys: async (prefix) => {
      return (await done(values("readonly").getAllKeys(IDBKeyRange.bound(prefix, `${prefix}\uffff`)))) as string[];
    },
  };
}

/** Return a store that is gone with the process: where there is no other, and for tests. */
export function memoryStore(): Store {
  const values = new Map<string, unknown>();
  return {
    get: async <T>(key: string) => values.get(key) as T | undefined,
    set: async (key, value) => void values.set(key, value),
    delete: async (key) => void values.delete(key),
    keys: async (prefix) => [...values.keys()].filter((key) => key.startsWith(prefix)).sort(),
  };
}
