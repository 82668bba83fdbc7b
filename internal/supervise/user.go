package supervise

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// User is who a command is inside: the caller's name and home directory, the
// latter empty and private there.
type User struct {
	Name string
	Home string
}

// CurrentUser returns the caller. A user without an entry in the password
// database is called by the number; one without a home directory that could
// be private lives in /home/NAME.
func CurrentUser() User {
	name := strconv.Itoa(os.Geteuid())
	u, err := user.LookupId(name)
	if err != nil {
		return User{Name: name, Home: filepath.Join("/home", name)}
	}
	if !filepath.IsAbs(u.HomeDir) || filepath.Clean(u.HomeDir) == "/" {
		return User{Name: u.Username, Home: filepath.Join("/home", u.Username)}
	}
	return User{Name: u.Username, Home: filepath.Clean(u.HomeDir)}
}
