package regression

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNoBaseline is the error of a clone that does not have the baseline. It is wrapped with the reason.
var ErrNoBaseline = errors.New("the baseline is not here")

// baselineFile names the baseline, from the root of a tree. Lines that begin with # are for readers.
var baselineFile = filepath.Join("cmd", "internal", "regression", "baseline")

var revisionForm = regexp.MustCompile(`^[0-9a-f]{40}$`)

// Baseline returns the revision that the tree is compared with. A clone may be shallow, and then the error
// wraps ErrNoBaseline.
func Baseline(ctx context.Context, repo string) (revision string, err error) {
	text, err := os.ReadFile(filepath.Join(repo, baselineFile))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case revision != "" || !revisionForm.MatchString(line):
			return "", fmt.Errorf("%s: %q is not the one line with the 40 digits of a commit", baselineFile, line)
		default:
			revision = line
		}
	}
	if revision == "" {
		return "", fmt.Errorf("%s names no commit", baselineFile)
	}
	if _, err := git(ctx, repo, "cat-file", "-e", revision+"^{commit}"); err != nil {
		return "", fmt.Errorf("%w: the clone does not have %s (git fetch --unshallow gets it)", ErrNoBaseline, revision)
	}
	return revision, nil
}

// movePrefix begins the line of a commit message that says why the baseline moves, with figures.
const movePrefix = "Baseline:"

// Moved returns why the baseline is what it is: what the commit that moved it last says of it. The error is
// of a commit that says nothing, or has no figures. A shallow clone may not have that commit; then the
// error wraps ErrNoBaseline.
func Moved(ctx context.Context, repo string) (reason string, err error) {
	message, err := git(ctx, repo, "log", "-1", "--format=%H%n%B", "--", baselineFile)
	if err != nil || message == "" {
		return "", fmt.Errorf("%w: no commit of this clone has moved %s (%v)", ErrNoBaseline, baselineFile, err)
	}
	commit, message, _ := strings.Cut(message, "\n")
	if shallow, err := git(ctx, repo, "rev-parse", "--is-shallow-repository"); err != nil || shallow == "true" {
		return "", fmt.Errorf("%w: the clone is shallow, so %s may not be the commit that has moved it (%v)", ErrNoBaseline, commit, err)
	}
	_, reason, found := strings.Cut("\n"+message, "\n"+movePrefix)
	if reason = strings.TrimSpace(reason); !found || !strings.ContainsAny(reason, "0123456789") {
		return "", fmt.Errorf("commit %s moves the baseline and does not say why: its message needs a line that begins with %q, with the figures", commit, movePrefix)
	}
	return reason, nil
}

func git(ctx context.Context, repo string, args ...string) (string, error) {
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stderr = repo, &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// maxTreeBytes bounds what Export writes.
const maxTreeBytes = 1 << 30

// Export writes the tree of a commit below dir. Rejected: git worktree, which leaves an entry in the
// repository if the process is killed.
func Export(ctx context.Context, repo, revision, dir string) (err error) {
	cmd := exec.CommandContext(ctx, "git", "archive", "--format=tar", revision)
	cmd.Dir = repo
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	err = untar(tar.NewReader(io.LimitReader(out, maxTreeBytes)), dir)
	_, _ = io.Copy(io.Discard, out) // so that git can end
	if waited := cmd.Wait(); waited != nil {
		return fmt.Errorf("git archive %s: %w: %s", revision, waited, bytes.TrimSpace(errs.Bytes()))
	}
	return err
}

// untar writes directories and plain files; os.Root keeps them below dir, whatever their names are.
func untar(in *tar.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
		case tar.TypeReg:
			err = writeFile(root, name, in, h.FileInfo().Mode().Perm())
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, from io.Reader, mode os.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
