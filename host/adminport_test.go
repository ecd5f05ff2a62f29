package host

import (
	"context"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// A socket needs a real directory.
func TestAdminSocketNeedsTheMachinesFilesystem(t *testing.T) {
	disk := crashfs.New()
	c := Config{ID: 1, Dir: "data", Members: map[uint64]string{1: "nowhere"}, AdminSocket: true}
	_, err := Open(context.Background(), c, WithFS(disk), WithTransport(&recordingTransport{}), WithLogger(quiet))
	if err == nil || !strings.Contains(err.Error(), "WithFS has replaced") {
		t.Fatal(err)
	}
	c.AdminSocket = false
	h, err := Open(context.Background(), c, WithFS(disk), WithTransport(&recordingTransport{}), WithLogger(quiet))
	if err != nil {
		t.Fatal(err) // the refusal has left nothing open
	}
	if err := h.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
