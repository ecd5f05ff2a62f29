// Command kv-pebble is one host of a replicated key-value store whose state is on the disk, in a Pebble
// database. Clients use it like examples/kv.
package main

import (
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace/examples/kv/server"
)

func main() { server.Main("kv-pebble", open) }

// open opens the state below the directory of its host: files are linked between the two, and that needs one
// filesystem.
func open(dir string) (server.Store, error) {
	return openStore(vfs.Default, filepath.Join(dir, "state"))
}
