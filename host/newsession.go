package host

import (
	"crypto/rand"
	"fmt"
	"io"

	"github.com/millrace/millrace/host/session"
)

// NewSession draws the id of a session for a client of the user's, which may send commands from several
// processes (Call.Session). It waits for nothing and writes nothing: members know the session when they apply
// its first command. It is born at the log time that this host has reached, so each member that applies a
// command of it has reached that, too.
func (g *Group) NewSession() session.ID {
	id := session.ID{Birth: g.time.last()}
	secrets := g.host.env.env.Secrets
	if secrets == nil {
		secrets = rand.Reader
	}
	if _, err := io.ReadFull(secrets, id.Client[:]); err != nil {
		panic(fmt.Sprintf("millrace: no random bytes for the id of a session: %v", err)) // crypto/rand never fails
	}
	return id
}
