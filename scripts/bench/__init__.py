"""The speed tables: the op beside what it replaces and beside its floors, on the GPU found."""
