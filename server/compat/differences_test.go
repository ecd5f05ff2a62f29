package compat

// Reasons that several rows share.
const (
	noQuota     = "etcd has a quota of 2 GiB by default and tells it; here there is none by default, and 0 is not written"
	noUsers     = "there are no users and roles in this version"
	noDowngrade = "there is no mode for downgrades: old and new members run side by side"
	noMembers   = "members do not change by etcd's API in this version"
	noSnapshot  = "this version writes no snapshot in etcd's format"
	sayBad      = "etcd closes a connection whose first bytes are no request; here it gets an answer of HTTP first"
)

// differences are the rows whose answers differ, and why. A row that is not here must be equal, and a
// row that is here must differ.
var differences = map[string]string{
	"status":     noQuota,
	"hash":       "the number is of the state's digest; etcd's is of the bytes of its bbolt file. hashkv is equal",
	"downgrade":  noDowngrade,
	"member add": noMembers,

	"bytes: half a preface":       sayBad,
	"bytes: noise":                sayBad,
	"bytes: a TLS hello":          sayBad,
	"bytes: a version of the web": sayBad,

	"etcdctl endpoint status -w json":             noQuota,
	"etcdctl user add x:x":                        noUsers,
	"etcdctl auth enable":                         noUsers,
	"etcdctl downgrade validate 3.6":              noDowngrade,
	"etcdctl member add n --peer-urls=http://h:1": noMembers,
}

// notThere are the reasons of RPCs that are missing.
var notThere = map[string]bool{noUsers: true, noDowngrade: true, noMembers: true, noSnapshot: true}
