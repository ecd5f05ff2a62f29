package main

import "testing"

// What a build complains of is not what it downloads.
func TestFirstComplaint(t *testing.T) {
	for out, want := range map[string]string{
		"go: downloading example.com/a v1.0.0\nmain.go:7:2: example.com/a: no route to host\n": "main.go:7:2: example.com/a: no route to host",
		"# example.com/b\n./b.go:3:1: syntax error\n":                                          "./b.go:3:1: syntax error",
		"": "it says nothing more",
	} {
		if have := firstComplaint(out); have != want {
			t.Errorf("%q of %q, want %q", have, out, want)
		}
	}
}
