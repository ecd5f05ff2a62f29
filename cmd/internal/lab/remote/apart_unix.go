//go:build unix

package remote

import (
	"os/exec"
	"syscall"
)

// apart puts a process into a group of its own, so that Ctrl-C reaches only its parent, which ends the load
// first.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
