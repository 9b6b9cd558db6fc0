# Build CPython without the GIL from a source package of Debian: `make free-threads`.
# Takes apt's mirror and needs a compiler and the headers of OpenSSL, SQLite, libffi and zlib. Changes nothing of apt.
set -eu
source=$1 suite=$2 folder=$(mkdir -p "$3" && cd "$3" && pwd)
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial" "$folder/build"
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | grep -v security | head -n 1)
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$folder/apt/sources.list"
apt() {
    apt-get --quiet --quiet -o Dir::Etc::sourcelist="$folder/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
cd "$folder/apt"
apt source --download-only "$source"
tar -xf "$source"_*.orig.tar.xz -C "$folder/build" --strip-components=1
cd "$folder/build"
./configure --quiet --disable-gil --disable-test-modules --prefix="$folder/python"
nice -n 19 make --silent
make --silent install
