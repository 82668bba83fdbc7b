package supervise

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// User is who a command is inside: its ids, their name and the home directory,
// which is private there, and empty unless it is kept.
type User struct {
	UID, GID int
	Name     string
	Home     string
}

// inside is the name of the user that is nobody's outside.
const inside = "user"

// UserOf returns who a command is in the sandbox of record r.
func UserOf(r *record.Record) User {
	u := userOf(r)
	if r.Home == record.HomeKeep {
		u.Home = record.KeptHomeInside
	}
	return u
}

func userOf(r *record.Record) User {
	if r.UID == nil {
		u := CurrentUser()
		if r.Runtime == record.RuntimeDocker {
			u.UID, u.GID = int(r.HostUID), int(r.HostUID)
		}
		return u
	}
	uid := int(*r.UID)
	switch uid {
	case os.Geteuid():
		return CurrentUser()
	case 0:
		return User{UID: 0, GID: 0, Name: "root", Home: "/root"}
	}
	return User{UID: uid, GID: uid, Name: inside, Home: "/home/" + inside}
}

// CurrentUser returns the caller. A user without an entry in the password
// database is called by the number; one without a home directory that could
// be private lives in /home/NAME.
func CurrentUser() User {
	uid, gid := os.Geteuid(), os.Getegid()
	name := strconv.Itoa(uid)
	u, err := user.LookupId(name)
	switch {
	case err != nil:
		return User{uid, gid, name, filepath.Join("/home", name)}
	case !filepath.IsAbs(u.HomeDir) || filepath.Clean(u.HomeDir) == "/":
		return User{uid, gid, u.Username, filepath.Join("/home", u.Username)}
	}
	return User{uid, gid, u.Username, filepath.Clean(u.HomeDir)}
}
