package regression

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// workloadDir is the folder of the workload, from the root of a tree.
var workloadDir = filepath.Join("cmd", "internal", "regression", "workload")

var workloadFiles = []string{"main.go", "disk.go"}

// Build builds the workload of source in another tree, or in the same one. Edits are files of the tree (from
// its root) with what takes their place in the build; the tree itself is not touched.
func Build(ctx context.Context, tree, source string, edits map[string][]byte, program string) error {
	overlay, err := os.MkdirTemp("", "millrace-overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(overlay)
	tree, err = filepath.Abs(tree)
	if err != nil {
		return err
	}
	replace := map[string]string{}
	for _, name := range workloadFiles {
		file, err := filepath.Abs(filepath.Join(source, workloadDir, name))
		if err != nil {
			return err
		}
		replace[filepath.Join(tree, workloadDir, name)] = file
	}
	for name, content := range edits {
		file := filepath.Join(overlay, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return err
		}
		replace[filepath.Join(tree, name)] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	list := filepath.Join(overlay, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(tree, "cmd"), "-trimpath", "-buildvcs=false", "-overlay", list, "-o", program, "./internal/regression/workload")
	cmd.Env = append(os.Environ(), "GOWORK=") // each tree has its own go.work
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("the workload does not build in %s: %w: %s", tree, err, bytes.TrimSpace(out))
	}
	return nil
}

// Same reports whether two programs are the same, byte for byte: then there is nothing to measure.
func Same(a, b string) (bool, error) {
	first, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	second, err := os.ReadFile(b)
	return bytes.Equal(first, second), err
}
