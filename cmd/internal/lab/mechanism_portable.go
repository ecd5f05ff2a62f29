//go:build !linux

package lab

func openBatchFile(mechanism, string, int64) (batchFile, error) {
	return nil, refusef("--mechanisms: O_DIRECT, O_DSYNC and sync_file_range are compared on Linux only")
}
