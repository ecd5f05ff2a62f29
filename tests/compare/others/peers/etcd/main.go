// Command etcd is the child of `millrace bench peers` for the etcd server: three of them embedded in one
// process, as etcd's own documentation embeds one, and its client. A value is a Put of a key of its own. Its
// argument is always "server".
package main

import (
	"fmt"
	"os"

	"github.com/millrace/millrace/cmd/lab/peer"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "server" {
		fmt.Fprintln(os.Stderr, "usage: etcd server, with a request on the standard input")
		os.Exit(2)
	}
	if err := peer.Serve(os.Stdin, os.Stdout, "etcd", open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
