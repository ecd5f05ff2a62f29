//go:build !unix

package front

import "errors"

func setReusePort(uintptr) error {
	return errors.New("--socket-reuse-port: this system has no SO_REUSEPORT")
}
