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
	"strings"
)

// ErrNoBaseline is the error of a tree that has no commit to compare with. It is wrapped with the reason.
var ErrNoBaseline = errors.New("there is no commit to compare with")

// mainBranches are where a branch begins, the first that exists.
var mainBranches = []string{"origin/main", "main"}

// Baseline returns the commit that a tree is compared with: where its branch has left the main branch. On
// the main branch itself it is HEAD if files differ from it, and the commit before otherwise. A clone may
// be shallow, or have one commit, and then the error wraps ErrNoBaseline.
func Baseline(ctx context.Context, repo string) (revision string, err error) {
	head, err := git(ctx, repo, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return "", fmt.Errorf("%w: %v", ErrNoBaseline, err)
	}
	for _, branch := range mainBranches {
		if base, err := git(ctx, repo, "merge-base", "HEAD", branch); err == nil && base != head {
			return base, nil
		}
	}
	changed, err := git(ctx, repo, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return "", err
	}
	if changed != "" {
		return head, nil
	}
	before, err := git(ctx, repo, "rev-parse", "--verify", "--quiet", "HEAD~1^{commit}")
	if err != nil {
		return "", fmt.Errorf("%w: the clone has one commit, or is shallow (git fetch --deepen=1 gets one more)", ErrNoBaseline)
	}
	return before, nil
}

// acceptedPrefix begins a line of a commit message that accepts a slower program, with the reason.
const acceptedPrefix = "Slower: "

// Accepted returns the reason for which the commits since revision accept that the program is slower; "" if
// none does.
func Accepted(ctx context.Context, repo, revision string) (reason string, err error) {
	messages, err := git(ctx, repo, "log", "--format=%B", revision+"..HEAD")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(messages) {
		if reason, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSpace(acceptedPrefix)); ok && strings.TrimSpace(reason) != "" {
			return strings.TrimSpace(reason), nil
		}
	}
	return "", nil
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
