// Package deps keeps the modules of the service in go.mod until its packages import them.
package deps

import (
	_ "github.com/anishathalye/porcupine"
	_ "github.com/spf13/cobra"
	_ "go.etcd.io/etcd/client/pkg/v3/types"
)
