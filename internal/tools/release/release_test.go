package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var try = flag.Bool("release.try", false, "release a copy of this repository and install the program from it: some minutes of compiling")

// repository is a repository with what a release looks at, and one commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":        "module " + library + "\n\ngo 1.26.0\n",
		"doc.go":        "package millrace\n",
		"LICENSE":       "free\n",
		"server/go.mod": "module " + library + "/server\n\ngo 1.26.0\n\nrequire " + library + " v0.0.0\n\n// Between releases.\nreplace " + library + " => ../\n",
		"server/go.sum": "example.com/a v1.0.0/go.mod h1:a=\n",
		"server/doc.go": "package server\n",
		"cmd/go.mod": "module " + library + "/cmd\n\ngo 1.26.0\n\nrequire " + library + " v0.0.0\n\nrequire " + library + "/server v0.0.0\n\n// Between releases.\nreplace " + library + " => ../\n\n" +
			"replace " + library + "/server => ../server\n",
		"cmd/go.sum": "example.com/a v1.0.0/go.mod h1:a=\ngolang.org/x/b v1.0.0/go.mod h1:b=\n",
		"ops/go.mod": "module " + library + "/ops\n\ngo 1.26.0\n\nrequire " + library + " v0.0.0\n\n// Between releases.\nreplace " + library + " => ../\n",
		"ops/go.sum": "example.com/a v1.0.0/go.mod h1:a=\n",
		"tests/compare/others/go.mod": "module " + library + "/tests/compare/others\n\ngo 1.26.0\n\nrequire " + library + " v0.0.0 // indirect\n\n" +
			"replace " + library + " => ../../../\n",
	} {
		write(t, filepath.Join(dir, path), text)
	}
	must(t, dir, "git", "init", "--quiet", "-b", "main")
	identify(t, dir)
	must(t, dir, "git", "add", ".")
	must(t, dir, "git", "commit", "--quiet", "-m", "all")
	return dir
}

func identify(t *testing.T, dir string) {
	t.Helper()
	must(t, dir, "git", "config", "user.name", "A Tester")
	must(t, dir, "git", "config", "user.email", "tester@example.com")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// must runs a command in dir and returns its output. env adds to the environment.
func must(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	return mustWith(t, nil, dir, name, args...)
}

func mustWith(t *testing.T, env []string, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// releaseIn runs the command in dir.
func releaseIn(t *testing.T, dir string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	t.Chdir(dir)
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

// The tagged commit can be installed; the one after it is the tree as it was.
func TestReleaseTagsAndPutsTheReplaceBack(t *testing.T) {
	dir := repository(t)
	before := must(t, dir, "git", "rev-parse", "HEAD^{tree}")
	if status, stdout, stderr := releaseIn(t, filepath.Join(dir, "cmd"), "v0.1.0"); status != 0 || !strings.Contains(stdout, "nothing was pushed") {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	if after := must(t, dir, "git", "rev-parse", "HEAD^{tree}"); after != before {
		t.Errorf("the tree after the release is %s, want %s", after, before)
	}
	if status := must(t, dir, "git", "status", "--porcelain"); status != "" {
		t.Errorf("not clean: %s", status)
	}
	released := must(t, dir, "git", "rev-parse", "HEAD~1")
	for _, tag := range []string{"v0.1.0", "server/v0.1.0", "cmd/v0.1.0", "ops/v0.1.0"} {
		if have := must(t, dir, "git", "rev-parse", tag+"^{commit}"); have != released {
			t.Errorf("tag %s is %s, want %s", tag, have, released)
		}
	}
	for _, name := range nested {
		if mod := must(t, dir, "git", "show", "v0.1.0:"+name+"/go.mod"); strings.Contains(mod, "replace") || strings.Contains(mod, "Between") || !strings.Contains(mod, "require "+library+" v0.1.0") {
			t.Errorf("%s/go.mod:\n%s", name, mod)
		}
	}
	if sum := must(t, dir, "git", "show", "ops/v0.1.0:ops/go.sum"); strings.Count(sum, library+" v0.1.0") != 2 {
		t.Errorf("ops/go.sum:\n%s", sum)
	}
	sum := must(t, dir, "git", "show", "v0.1.0:cmd/go.sum")
	if lines := strings.Split(sum, "\n"); len(lines) != 6 || !strings.HasPrefix(lines[3], library+"/server v0.1.0 h1:") || !strings.HasPrefix(lines[1], library+" v0.1.0 h1:") || !strings.HasPrefix(lines[2], library+" v0.1.0/go.mod h1:") {
		t.Errorf("cmd/go.sum:\n%s", sum)
	}
	if mod := must(t, dir, "git", "show", "v0.1.0:tests/compare/others/go.mod"); !strings.Contains(mod, library+" v0.1.0 // indirect") || !strings.Contains(mod, "replace") {
		t.Errorf("the module of other projects:\n%s", mod)
	}
	if status, _, stderr := releaseIn(t, dir, "v0.1.0"); status != 1 || !strings.Contains(stderr, "v0.1.0 is not above the tag") {
		t.Errorf("the same version again: %d, %q", status, stderr)
	}
	if status, _, stderr := releaseIn(t, dir, "v0.2.0-rc.1"); status != 0 {
		t.Errorf("the next version: %d, %q", status, stderr)
	}
}

func TestReleasePushesWhenAsked(t *testing.T) {
	dir, remote := repository(t), t.TempDir()
	must(t, remote, "git", "init", "--quiet", "--bare")
	must(t, dir, "git", "remote", "add", "origin", remote)
	if status, stdout, stderr := releaseIn(t, dir, "--push", "v1.0.0"); status != 0 || !strings.Contains(stdout, "pushed main and v1.0.0 server/v1.0.0 cmd/v1.0.0 ops/v1.0.0 to origin") {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	if have, want := must(t, remote, "git", "rev-parse", "main"), must(t, dir, "git", "rev-parse", "HEAD"); have != want {
		t.Errorf("the remote has %s, want %s", have, want)
	}
	if tags := must(t, remote, "git", "tag"); tags != "cmd/v1.0.0\nops/v1.0.0\nserver/v1.0.0\nv1.0.0" {
		t.Errorf("tags of the remote: %q", tags)
	}
}

// What a release refuses, or only plans, leaves the repository as it was.
func TestReleaseRefuses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spoil  func(t *testing.T, dir string)
		args   []string
		status int
		want   string
	}{
		{"a dry run", nil, []string{"--dry-run", "v0.1.0"}, 0, "dry run: nothing was changed"},
		{"no version", nil, nil, 64, "want one VERSION"},
		{"two versions", nil, []string{"v0.1.0", "v0.2.0"}, 64, "want one VERSION"},
		{"an unknown flag", nil, []string{"--force", "v0.1.0"}, 64, "-force (see --help)"},
		{"help", nil, []string{"--help"}, 0, "usage: release"},
		{"no v", nil, []string{"0.1.0"}, 1, `"0.1.0" is not a version`},
		{"a short version", nil, []string{"v1.0"}, 1, `"v1.0" is not a version`},
		{"a version that needs another path", nil, []string{"v2.0.0"}, 1, "needs a module path that ends in /v2"},
		{"an untracked file", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "x"), "") }, []string{"v0.1.0"}, 1, "the tree is not clean"},
		{"no branch", func(t *testing.T, dir string) { must(t, dir, "git", "checkout", "--quiet", "--detach") }, []string{"v0.1.0"}, 1, "HEAD is on no branch"},
		{"another replace", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "cmd/go.mod"), "module "+library+"/cmd\n\nreplace example.com/a => ../a\n")
			must(t, dir, "git", "commit", "--quiet", "-am", "spoilt")
		}, []string{"v0.1.0"}, 1, "it replaces example.com/a"},
		{"a commit that fails", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".git/hooks/pre-commit"), "#!/bin/sh\necho no commits today >&2\nexit 1\n")
			if err := os.Chmod(filepath.Join(dir, ".git/hooks/pre-commit"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, []string{"v0.1.0"}, 1, "no commits today"},
		{"a tag that fails", func(t *testing.T, dir string) { // the name of a tag is taken by a directory
			write(t, filepath.Join(dir, ".git/refs/tags/cmd/v0.1.0/x"), must(t, dir, "git", "rev-parse", "HEAD"))
		}, []string{"v0.1.0"}, 1, "git tag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := repository(t)
			if tc.spoil != nil {
				tc.spoil(t, dir)
			}
			state := func() string {
				return fmt.Sprint(must(t, dir, "git", "rev-parse", "HEAD"), must(t, dir, "git", "status", "--porcelain"), must(t, dir, "git", "tag"))
			}
			before := state()
			status, stdout, stderr := releaseIn(t, dir, tc.args...)
			if status != tc.status || !strings.Contains(stdout+stderr, tc.want) {
				t.Errorf("status %d, %q, %q; want %d and %q", status, stdout, stderr, tc.status, tc.want)
			}
			if after := state(); after != before {
				t.Errorf("%s became %s", before, after)
			}
		})
	}
}

// TestInstallFromACopy releases a copy of this repository, and installs the program from the copy as a user
// would from GitHub: git serves the copy under GitHub's address, and other modules come from this machine's
// module cache, so that nothing leaves the machine.
func TestInstallFromACopy(t *testing.T) {
	if !*try {
		t.Skip("takes minutes; run it with -release.try")
	}
	const version = "v0.99.0"
	scratch := t.TempDir()
	tree, repo := must(t, ".", "git", "rev-parse", "--show-toplevel"), filepath.Join(scratch, "copy")
	must(t, scratch, "git", "clone", "--quiet", tree, repo)
	identify(t, repo)
	must(t, repo, "git", "checkout", "--quiet", "-B", "main")
	if status, stdout, stderr := releaseIn(t, repo, version); status != 0 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	env := []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOSUMDB=off", "GOPRIVATE=" + library,
		"GOPROXY=file://" + filepath.ToSlash(must(t, ".", "go", "env", "GOMODCACHE")) + "/cache/download",
		"GOMODCACHE=" + filepath.Join(scratch, "modules"), "GOBIN=" + filepath.Join(scratch, "bin"),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + repo + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + library,
	}
	mustWith(t, env, scratch, "go", "install", library+"/cmd/millrace@"+version)
	program := filepath.Join(scratch, "bin", "millrace")
	if have := must(t, scratch, program, "version"); !strings.HasPrefix(have, "millrace "+version+" ") {
		t.Errorf("the program says %q", have)
	}
	must(t, scratch, program, "bench", "--pipelines", "async", "--clients", "1", "--duration", "100ms", "--warmup", "10ms", "--dir", scratch, "--quiet")

	// The checksums in go.sum are those of the tag, and the module of other projects builds from a checkout
	// of it.
	must(t, repo, "git", "checkout", "--quiet", version)
	mustWith(t, env, filepath.Join(repo, "cmd"), "go", "build", "-o", filepath.Join(scratch, "checked"), "./millrace")
	mustWith(t, env, filepath.Join(repo, "cmd"), "go", "mod", "tidy", "-diff")
	mustWith(t, env, filepath.Join(repo, "tests/compare/others/logs/boltdb"), "go", "vet", ".")
	must(t, repo, "git", "checkout", "--quiet", "main")
	mustWith(t, []string{"GOWORK="}, repo, "go", "build", "-o", filepath.Join(scratch, "developed"), "./cmd/millrace")
}
