"""The words and presets that this package shares with the command line. Written by make gen: do not edit."""

from __future__ import annotations

from enum import Enum
from typing import Dict, Tuple


class Permission(str, Enum):
    """What a path is to a sandbox: it does not exist, is listed without its content, can be read, can be changed."""

    NONE = "none"
    VIEW = "view"
    READ = "read"
    WRITE = "write"


class PatternType(str, Enum):
    """How a rule's pattern is read; AUTO tells it from the pattern's text, as a policy file does."""

    GLOB = "glob"
    DIRECTORY = "directory"
    FILE = "file"
    AUTO = "auto"


class Risk(str, Enum):
    """How a changed file could act outside of the sandbox: tools of the host do what it says, or it is run there."""

    NONE = "none"
    TRUSTED_LATER = "trusted_later"
    RUNS_ON_HOST = "runs_on_host"


class Reason(str, Enum):
    """Why a server refuses a call: it tells errors of one status apart."""

    SANDBOX_NOT_FOUND = "SANDBOX_NOT_FOUND"
    CODEBASE_NOT_FOUND = "CODEBASE_NOT_FOUND"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    EXEC_NOT_FOUND = "EXEC_NOT_FOUND"
    SANDBOX_NOT_RUNNING = "SANDBOX_NOT_RUNNING"
    SANDBOX_ALREADY_RUNNING = "SANDBOX_ALREADY_RUNNING"
    SESSION_CLOSED = "SESSION_CLOSED"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    COMMAND_NOT_STARTED = "COMMAND_NOT_STARTED"


Rule = Tuple[str, Permission, PatternType, int]
"""Pattern, permission, type and priority."""

PRESET_AGENT_SAFE = "agent-safe"
PRESET_DEVELOPMENT = "development"
PRESET_FULL_ACCESS = "full-access"
PRESET_NOTHING = "nothing"
PRESET_READ_ONLY = "read-only"
PRESET_VIEW_ONLY = "view-only"

DEFAULT_PRESET = PRESET_AGENT_SAFE

PRESETS: Dict[str, Tuple[Rule, ...]] = {
    "agent-safe": (
        ("**/*", Permission.READ, PatternType.GLOB, 0),
        ("/output/**", Permission.WRITE, PatternType.GLOB, 10),
        ("/tmp/**", Permission.WRITE, PatternType.GLOB, 10),
        ("**/.git/**", Permission.NONE, PatternType.GLOB, 50),
        ("**/.env", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env.{local,*.local,dev,development,test,staging,prod,production}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env{{,*[!cet]},{,*[!r]}c,*?rc,{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{secret,secrets}.{yaml,yml,json,toml,ini,env,properties}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets.{local,dev,development,test,staging,stage,prod,production}.{yaml,yml,json,toml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.key", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{key,privkey}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{{,*[!enst]},{,*[!l]}e,{,*[!d]}le,{,*[!n]}dle,{,*[!u]}ndle,{,*[!b]}undle,{,*[!-]}bundle,{,*[!a]}-bundle,{,*[!c]}a-bundle,*?ca-bundle,{,*[!i]}n,{,*[!a]}in,{,*[!h]}ain,{,*[!c]}hain,*[!l]chain,{,*[!l]}lchain,{,*[!u]}llchain,{,*[!f]}ullchain,*?fullchain,{,*[!t]}s,{,*[!o]}ts,{,*[!o]}ots,{,*[!r]}oots,*?roots,{,*[!r]}t,{,*[!e]}rt,{,*[!c]}ert,{,*[!a]}cert,{,*[!c]}acert,*?cacert}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{id_rsa,id_dsa,id_ecdsa,id_ed25519,id_ecdsa_sk,id_ed25519_sk,id_xmss}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.ssh/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p12,pfx}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p8,pkcs8,pvk,ppk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{jks,keystore,bks}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.keytab", Permission.NONE, PatternType.GLOB, 100),
        ("**/.gnupg/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/secring.gpg", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{kdb,kdbx,psafe3,agilekeychain}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.password-store/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.ovpn", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{credentials,config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{sso,cli}/cache/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/credentials{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{credentials,*[-._]credentials}.{json,yaml,yml,toml,xml,ini,csv,properties,db}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.*/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/git/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/service{-,_}account{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/*[-._]service{-,_}account.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/serviceAccount{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/client_secret{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/gcloud/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.azure/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.oci/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/doctl/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.s3cfg,.boto,.rclone.conf,rclone.conf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate{,.backup,.*.backup}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate.d/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfvars{,.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.terraformrc,terraform.rc,credentials.tfrc.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{kubeconfig,*.kubeconfig,kubeconfig.yaml,kubeconfig.yml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.kube/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.docker/config.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.dockercfg,.dockerconfigjson}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.vault-token,.vault_pass,.vault_pass.txt,vault_pass.txt,.vault-password}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.npmrc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.pypirc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.m2/{settings.xml,settings-security.xml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.nuget/NuGet/NuGet.Config,.config/NuGet/NuGet.Config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.git-credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.netrc,_netrc}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/{gh,glab-cli}/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/hub", Permission.NONE, PatternType.GLOB, 100),
        ("**/.htpasswd", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.pgpass,pgpass.conf,.my.cnf,.mylogin.cnf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.ftpconfig,sftp-config.json,.remote-sync.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{rdp,tblk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.{bash,zsh,sh,python,psql,mysql,sqlite,node_repl,rediscli,irb}_history", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.claude/.credentials.json,.codex/auth.json,.gemini/oauth_creds.json}", Permission.NONE, PatternType.GLOB, 100),
    ),
    "development": (
        ("**/*", Permission.WRITE, PatternType.GLOB, 0),
        ("**/.env", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env.{local,*.local,dev,development,test,staging,prod,production}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env{{,*[!cet]},{,*[!r]}c,*?rc,{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{secret,secrets}.{yaml,yml,json,toml,ini,env,properties}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets.{local,dev,development,test,staging,stage,prod,production}.{yaml,yml,json,toml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.key", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{key,privkey}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{{,*[!enst]},{,*[!l]}e,{,*[!d]}le,{,*[!n]}dle,{,*[!u]}ndle,{,*[!b]}undle,{,*[!-]}bundle,{,*[!a]}-bundle,{,*[!c]}a-bundle,*?ca-bundle,{,*[!i]}n,{,*[!a]}in,{,*[!h]}ain,{,*[!c]}hain,*[!l]chain,{,*[!l]}lchain,{,*[!u]}llchain,{,*[!f]}ullchain,*?fullchain,{,*[!t]}s,{,*[!o]}ts,{,*[!o]}ots,{,*[!r]}oots,*?roots,{,*[!r]}t,{,*[!e]}rt,{,*[!c]}ert,{,*[!a]}cert,{,*[!c]}acert,*?cacert}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{id_rsa,id_dsa,id_ecdsa,id_ed25519,id_ecdsa_sk,id_ed25519_sk,id_xmss}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.ssh/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p12,pfx}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p8,pkcs8,pvk,ppk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{jks,keystore,bks}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.keytab", Permission.NONE, PatternType.GLOB, 100),
        ("**/.gnupg/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/secring.gpg", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{kdb,kdbx,psafe3,agilekeychain}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.password-store/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.ovpn", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{credentials,config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{sso,cli}/cache/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/credentials{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{credentials,*[-._]credentials}.{json,yaml,yml,toml,xml,ini,csv,properties,db}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.*/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/git/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/service{-,_}account{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/*[-._]service{-,_}account.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/serviceAccount{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/client_secret{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/gcloud/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.azure/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.oci/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/doctl/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.s3cfg,.boto,.rclone.conf,rclone.conf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate{,.backup,.*.backup}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate.d/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfvars{,.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.terraformrc,terraform.rc,credentials.tfrc.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{kubeconfig,*.kubeconfig,kubeconfig.yaml,kubeconfig.yml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.kube/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.docker/config.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.dockercfg,.dockerconfigjson}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.vault-token,.vault_pass,.vault_pass.txt,vault_pass.txt,.vault-password}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.npmrc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.pypirc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.m2/{settings.xml,settings-security.xml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.nuget/NuGet/NuGet.Config,.config/NuGet/NuGet.Config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.git-credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.netrc,_netrc}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/{gh,glab-cli}/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/hub", Permission.NONE, PatternType.GLOB, 100),
        ("**/.htpasswd", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.pgpass,pgpass.conf,.my.cnf,.mylogin.cnf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.ftpconfig,sftp-config.json,.remote-sync.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{rdp,tblk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.{bash,zsh,sh,python,psql,mysql,sqlite,node_repl,rediscli,irb}_history", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.claude/.credentials.json,.codex/auth.json,.gemini/oauth_creds.json}", Permission.NONE, PatternType.GLOB, 100),
    ),
    "full-access": (
        ("**/*", Permission.WRITE, PatternType.GLOB, 0),
    ),
    "nothing": (
        ("**/.env", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env.{local,*.local,dev,development,test,staging,prod,production}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env{{,*[!cet]},{,*[!r]}c,*?rc,{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{secret,secrets}.{yaml,yml,json,toml,ini,env,properties}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets.{local,dev,development,test,staging,stage,prod,production}.{yaml,yml,json,toml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.key", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{key,privkey}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{{,*[!enst]},{,*[!l]}e,{,*[!d]}le,{,*[!n]}dle,{,*[!u]}ndle,{,*[!b]}undle,{,*[!-]}bundle,{,*[!a]}-bundle,{,*[!c]}a-bundle,*?ca-bundle,{,*[!i]}n,{,*[!a]}in,{,*[!h]}ain,{,*[!c]}hain,*[!l]chain,{,*[!l]}lchain,{,*[!u]}llchain,{,*[!f]}ullchain,*?fullchain,{,*[!t]}s,{,*[!o]}ts,{,*[!o]}ots,{,*[!r]}oots,*?roots,{,*[!r]}t,{,*[!e]}rt,{,*[!c]}ert,{,*[!a]}cert,{,*[!c]}acert,*?cacert}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{id_rsa,id_dsa,id_ecdsa,id_ed25519,id_ecdsa_sk,id_ed25519_sk,id_xmss}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.ssh/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p12,pfx}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p8,pkcs8,pvk,ppk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{jks,keystore,bks}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.keytab", Permission.NONE, PatternType.GLOB, 100),
        ("**/.gnupg/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/secring.gpg", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{kdb,kdbx,psafe3,agilekeychain}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.password-store/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.ovpn", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{credentials,config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{sso,cli}/cache/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/credentials{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{credentials,*[-._]credentials}.{json,yaml,yml,toml,xml,ini,csv,properties,db}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.*/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/git/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/service{-,_}account{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/*[-._]service{-,_}account.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/serviceAccount{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/client_secret{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/gcloud/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.azure/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.oci/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/doctl/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.s3cfg,.boto,.rclone.conf,rclone.conf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate{,.backup,.*.backup}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate.d/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfvars{,.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.terraformrc,terraform.rc,credentials.tfrc.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{kubeconfig,*.kubeconfig,kubeconfig.yaml,kubeconfig.yml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.kube/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.docker/config.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.dockercfg,.dockerconfigjson}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.vault-token,.vault_pass,.vault_pass.txt,vault_pass.txt,.vault-password}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.npmrc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.pypirc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.m2/{settings.xml,settings-security.xml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.nuget/NuGet/NuGet.Config,.config/NuGet/NuGet.Config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.git-credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.netrc,_netrc}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/{gh,glab-cli}/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/hub", Permission.NONE, PatternType.GLOB, 100),
        ("**/.htpasswd", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.pgpass,pgpass.conf,.my.cnf,.mylogin.cnf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.ftpconfig,sftp-config.json,.remote-sync.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{rdp,tblk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.{bash,zsh,sh,python,psql,mysql,sqlite,node_repl,rediscli,irb}_history", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.claude/.credentials.json,.codex/auth.json,.gemini/oauth_creds.json}", Permission.NONE, PatternType.GLOB, 100),
    ),
    "read-only": (
        ("**/*", Permission.READ, PatternType.GLOB, 0),
        ("**/.env", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env.{local,*.local,dev,development,test,staging,prod,production}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.env{{,*[!cet]},{,*[!r]}c,*?rc,{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{secret,secrets}.{yaml,yml,json,toml,ini,env,properties}", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets.{local,dev,development,test,staging,stage,prod,production}.{yaml,yml,json,toml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.key", Permission.NONE, PatternType.GLOB, 100),
        ("**/{,*[-._]}{key,privkey}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{{,*[!enst]},{,*[!l]}e,{,*[!d]}le,{,*[!n]}dle,{,*[!u]}ndle,{,*[!b]}undle,{,*[!-]}bundle,{,*[!a]}-bundle,{,*[!c]}a-bundle,*?ca-bundle,{,*[!i]}n,{,*[!a]}in,{,*[!h]}ain,{,*[!c]}hain,*[!l]chain,{,*[!l]}lchain,{,*[!u]}llchain,{,*[!f]}ullchain,*?fullchain,{,*[!t]}s,{,*[!o]}ts,{,*[!o]}ots,{,*[!r]}oots,*?roots,{,*[!r]}t,{,*[!e]}rt,{,*[!c]}ert,{,*[!a]}cert,{,*[!c]}acert,*?cacert}.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/{id_rsa,id_dsa,id_ecdsa,id_ed25519,id_ecdsa_sk,id_ed25519_sk,id_xmss}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.ssh/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p12,pfx}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{p8,pkcs8,pvk,ppk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{jks,keystore,bks}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.keytab", Permission.NONE, PatternType.GLOB, 100),
        ("**/.gnupg/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/secring.gpg", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{kdb,kdbx,psafe3,agilekeychain}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.password-store/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.ovpn", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{credentials,config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.aws/{sso,cli}/cache/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/credentials{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{credentials,*[-._]credentials}.{json,yaml,yml,toml,xml,ini,csv,properties,db}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.*/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/git/credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/service{-,_}account{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/*[-._]service{-,_}account.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/serviceAccount{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/client_secret{{,*[!et]},{,*[!lt]}e,{,*[!p]}le,{,*[!m]}ple,{,*[!a]}mple,{,*[!sx]}ample,{,*[!e]}xample,{,*[!a]}te,{,*[!l]}ate,{,*[!p]}late,{,*[!m]}plate,{,*[!e]}mplate,{,*[!t]}emplate,{,*[!s]}t,{,*[!i]}st,{,*[!d]}ist}.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/gcloud/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.azure/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.oci/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/doctl/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.s3cfg,.boto,.rclone.conf,rclone.conf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate{,.backup,.*.backup}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfstate.d/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.tfvars{,.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.terraformrc,terraform.rc,credentials.tfrc.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{kubeconfig,*.kubeconfig,kubeconfig.yaml,kubeconfig.yml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.kube/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.docker/config.json", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.dockercfg,.dockerconfigjson}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.vault-token,.vault_pass,.vault_pass.txt,vault_pass.txt,.vault-password}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.npmrc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.pypirc", Permission.NONE, PatternType.GLOB, 100),
        ("**/.m2/{settings.xml,settings-security.xml}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.nuget/NuGet/NuGet.Config,.config/NuGet/NuGet.Config}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.git-credentials", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.netrc,_netrc}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/{gh,glab-cli}/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/.config/hub", Permission.NONE, PatternType.GLOB, 100),
        ("**/.htpasswd", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.pgpass,pgpass.conf,.my.cnf,.mylogin.cnf}", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.ftpconfig,sftp-config.json,.remote-sync.json}", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.{rdp,tblk}", Permission.NONE, PatternType.GLOB, 100),
        ("**/.{bash,zsh,sh,python,psql,mysql,sqlite,node_repl,rediscli,irb}_history", Permission.NONE, PatternType.GLOB, 100),
        ("**/{.claude/.credentials.json,.codex/auth.json,.gemini/oauth_creds.json}", Permission.NONE, PatternType.GLOB, 100),
    ),
    "view-only": (
        ("**/*", Permission.VIEW, PatternType.GLOB, 0),
    ),
}

FIRST_PRESETS: Dict[str, Tuple[Rule, ...]] = {
    "agent-safe@v1": (
        ("**/*", Permission.READ, PatternType.GLOB, 0),
        ("/output/**", Permission.WRITE, PatternType.GLOB, 10),
        ("/tmp/**", Permission.WRITE, PatternType.GLOB, 10),
        ("**/.git/**", Permission.NONE, PatternType.GLOB, 50),
        ("**/.env*", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.key", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.pem", Permission.NONE, PatternType.GLOB, 100),
        ("**/credentials*", Permission.NONE, PatternType.GLOB, 100),
    ),
    "development@v1": (
        ("**/*", Permission.WRITE, PatternType.GLOB, 0),
        ("**/.env*", Permission.NONE, PatternType.GLOB, 100),
        ("**/secrets/**", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.key", Permission.NONE, PatternType.GLOB, 100),
        ("**/*.pem", Permission.NONE, PatternType.GLOB, 100),
    ),
    "full-access@v1": (
        ("**/*", Permission.WRITE, PatternType.GLOB, 0),
    ),
    "read-only@v1": (
        ("**/*", Permission.READ, PatternType.GLOB, 0),
    ),
    "view-only@v1": (
        ("**/*", Permission.VIEW, PatternType.GLOB, 0),
    ),
}
