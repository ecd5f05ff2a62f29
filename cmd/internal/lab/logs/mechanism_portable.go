//go:build !linux

package logs

import "github.com/millrace/millrace/cmd/internal/lab"

func openBatchFile(mechanism, string, int64) (batchFile, error) {
	return nil, lab.Cannot("BatchBytes", "O_DIRECT, O_DSYNC and sync_file_range are compared on Linux only")
}
