// Command kv is one host of a replicated key-value store, with HTTP for clients.
package main

import "github.com/millrace/millrace/examples/kv/server"

func main() { server.Main("kv", open) }

func open(string) (server.Store, error) { return newStore(), nil }
