// Command release tags a version of the library, of the service, of the programs, and of package ops.
//
// The last three are modules of their own (server, cmd and ops), and use the library in their tree: their
// go.mod replaces it by "../". The go command installs no program whose go.mod has a replace. So a release is
// a commit in which these require the library at the released version, without the replace, and all tags name
// that commit. A second commit puts the replaces back, because development uses the library of the tree.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const help = `usage: release [--dry-run] [--push] VERSION

release tags VERSION of the library (tag VERSION), of the service (tag server/VERSION), of the programs (tag
cmd/VERSION) and of package ops (tag ops/VERSION), so that

    go install github.com/millrace/millrace/cmd/millrace@VERSION

works once the tags are pushed. Run it from anywhere in the repository:

    (cd internal/tools && GOWORK=off go run ./release --dry-run v0.1.0)

It refuses a version that is no v0.X.Y or v1.X.Y (with or without a pre-release, v0.2.0-rc.1), one that is not above
the latest tag, and a tree that is not clean. Then it
  1. makes the go.mod of server, cmd and ops require the library and each other at VERSION, and drops their
     replaces; adds the checksums to their go.sum; sets the version in tests/compare/others/go.mod, which keeps its
     replace: it is never installed
  2. commits that, and tags the commit VERSION, server/VERSION, cmd/VERSION and ops/VERSION
  3. commits the files of step 1 as they were before, for development
  4. with --push, pushes the branch and all tags to the branch's remote, all or nothing. Without it, nothing leaves
     this machine

Tests are not run: run .ci/run before.

  --dry-run        check everything, say what would be done, and change nothing
  --push           push when done
  --artifacts DIR  tag nothing, and make in DIR what is published beside the tags of VERSION: the modules as a module
                   proxy serves them, static binaries for Linux and macOS, what each consists of (CycloneDX), an OCI
                   image, notes from the CHANGELOG, and SHA256SUMS

Exit status: 0 done; 1 it failed, and the message says what was left behind; 64 wrong command line.
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	const usage = 64
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&r.dryRun, "dry-run", false, "")
	flags.BoolVar(&r.push, "push", false, "")
	out := flags.String("artifacts", "", "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, help)
		return 0
	case err == nil && *out != "" && (r.dryRun || r.push):
		err = errors.New("--artifacts goes with neither --dry-run nor --push")
	case err == nil && flags.NArg() != 1:
		err = fmt.Errorf("want one VERSION after the flags, have %d arguments", flags.NArg())
	}
	if err != nil {
		fmt.Fprintf(stderr, "release: %v (see --help)\n", err)
		return usage
	}
	r.version, r.out = flags.Arg(0), stdout
	if *out != "" {
		err = publishable(r, *out)
	} else {
		err = r.run(".")
	}
	if err != nil {
		fmt.Fprintf(stderr, "release: %v\n", err)
		return 1
	}
	return 0
}

// publishable makes the artifacts of a version that is tagged.
func publishable(r release, out string) error {
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	fmt.Fprintf(r.out, "artifacts of %s in %s\n", r.version, out)
	return (&artifacts{root: root, version: r.version, out: out, platforms: platforms, log: r.out}).run(context.Background())
}
