// Package zero runs every command of docs/howto/three-machines.md, in order and as it is written there.
//
// The three machines are network namespaces with a root directory of their own each, over the files of this
// machine. What the page needs and a test cannot have is replaced. So ssh and scp go into a namespace, and
// git clone takes the files of this checkout. systemctl starts what the ExecStart of a unit says, as its user
// and with its credentials. Everything else is real: programs, certificates, users, addresses.
//
// It needs root and Linux, and is skipped without.
package zero
