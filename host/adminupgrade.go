package host

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/admin"
)

// upgradeTime bounds how long a program waits for an upgrade.
const upgradeTime = 30 * time.Second

// Upgrade implements admin.Host.
func (a adminPort) Upgrade(ctx context.Context, group uint64, to uint32) (admin.Upgrade, error) {
	g, err := a.group(group)
	if err != nil {
		return admin.Upgrade{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, upgradeTime)
	defer cancel()
	if err := g.Upgrade(ctx, to); err != nil {
		return admin.Upgrade{}, err
	}
	at := g.machine.apply.At()
	text := fmt.Sprintf("group %d is at version %d of its state machine since entry %d", group, at.Version, at.Since)
	if at.Since == 0 {
		text = fmt.Sprintf("group %d is at version %d of its state machine since it was founded", group, at.Version)
	}
	return admin.Upgrade{Group: group, Version: at.Version, Since: at.Since, Text: text}, nil
}
