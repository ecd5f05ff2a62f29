package crashfs_test

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A toy log keeps one record in a file of its own. It syncs the file and forgets to sync its name.
func save(disk vfs.FS, record string) error {
	f, err := disk.Create("/record")
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(record), 0)
	return errors.Join(err, f.Sync(), f.Close()) // vfs.SyncDir(disk, "/") is missing
}

func load(disk vfs.FS) string {
	f, err := disk.Open("/record")
	if err != nil {
		return ""
	}
	p := make([]byte, 100)
	n, _ := f.ReadAt(p, 0)
	return string(p[:n])
}

// The record must survive a power cut, whatever the disk kept. It does not, and the output names the missing
// sync.
func ExampleFS_Images() {
	disk := crashfs.New()
	if err := save(disk, "precious"); err != nil {
		fmt.Println(err)
	}
	for crash, image := range disk.Images(256, 1) {
		if got := load(image); got != "precious" {
			fmt.Printf("lost: %q; %v\n", crash.Lost(), crash)
		}
	}
	// Output:
	// lost: ["creation of /record"]; survived: nothing; lost or older: 1 of 1 (code 0)
}

// The third sync of any segment reports success and keeps nothing, and one read in a thousand fails.
func ExampleWhen() {
	disk := crashfs.New()
	disk.SetHook(crashfs.Hooks(
		crashfs.When{Kind: crashfs.OpSync, Name: "*.wal", Nth: 3}.Do(crashfs.Lie),
		crashfs.Odds{ReadError: 1000}.Hook(4711),
	))
	f, _ := disk.Create("/1.wal")
	for i := range 3 {
		_, _ = f.WriteAt([]byte{1}, int64(i)*crashfs.SectorBytes)
		fmt.Println(f.Sync(), disk.UnsyncedBytes())
	}
	// Output:
	// <nil> 0
	// <nil> 0
	// <nil> 1
}
