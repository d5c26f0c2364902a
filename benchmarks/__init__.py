"""Programs that measure what the documents claim: ``python -m benchmarks.ROOM.NAME [--quick] [--json FILE]``.

`alternatives` and `fleet` are programs of several files; `papers` repeats measurements of publications (exits and
growth in rooms of their own); `limits` breaks limits, and `limits.hostile` attacks; `search` compares searches;
`models` has what a bundle and its training cost, and `lib` what all share. `docs/notes/README.md` lists them.
"""
