// Command hashicorp is the child of `millrace bench peers` for hashicorp/raft, on the log that its argument
// names:
//
//	wal    hashicorp/raft-wal
//	bolt   hashicorp/raft-boltdb on bbolt
//
// Nodes talk through the library's own TCP transport.
package main

import (
	"fmt"
	"os"

	"github.com/millrace/millrace/cmd/lab/peer"
)

func main() {
	if len(os.Args) != 2 || stores[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: hashicorp wal|bolt, with a request on the standard input")
		os.Exit(2)
	}
	open := opener(stores[os.Args[1]])
	if err := peer.Serve(os.Stdin, os.Stdout, "hashicorp-"+os.Args[1], open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
