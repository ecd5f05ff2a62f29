package sim

import (
	"strings"

	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A host keeps to the directory that it has locked, wherever its paths lead by then. Each process gets a
// relative directory, and changes its working directory as soon as its host is open, before it opens a
// group: as a daemon does that goes to /. A path that is not made absolute in Open leads elsewhere from then
// on, where a host finds nothing and makes the other half of itself. Checked at each operation of a disk.

// elsewhere is the working directory of each process whose host is open.
const elsewhere = "/elsewhere"

// checkPlace looks at the path of an operation.
func (h *machine) checkPlace(op crashfs.Op) {
	if strings.HasPrefix(op.Name, elsewhere) {
		h.w.breaks(property.Directory, "host %d uses %s, beside the directory that it has locked: %v", h.id, op.Name, op.Kind)
	}
}
