# SPDX-License-Identifier: Apache-2.0
# Completion of the `kolo` command for bash. Commands, options and algorithms are asked of the program
# itself, so that nothing here grows old.

# _kolo_options COMMAND: the options that its --help tells.
_kolo_options()
{
    "$_kolo" "$1" --help 2>/dev/null | sed -nE 's/^ {2,6}(-[a-zA-Z], )?(--[a-z-]+).*/\2/p' | sort -u
}

# _kolo_wants COMMAND OPTION: what the option takes, as --help names it: FILE, N, ... or nothing.
_kolo_wants()
{
    local short long value
    while read -r short long value; do
        [[ $2 == "$short" || $2 == "$long" ]] && echo "$value"
    done < <("$_kolo" "$1" --help 2>/dev/null |
        sed -nE 's/^ {2,6}(-([a-zA-Z]), )?(--[a-z-]+) ([A-Z:]+)( .*)?$/-\2 \3 \4/p')
}

_kolo_collectives()
{
    "$_kolo" plan --list 2>/dev/null | sed -nE 's/^([a-z]+)_.*/\1/p' | sort -u
}

# _kolo_values COMMAND: words that stand without an option before them; nothing: files.
_kolo_values()
{
    case $1 in
        plan) "$_kolo" plan --list 2>/dev/null | grep -oE '^[a-z]+_[a-z_]+' && _kolo_collectives ;;
        tune | sim) _kolo_collectives ;;
        ps) ps -o pid= -u "$(id -u)" ;;
        env) "$_kolo" env | grep -oE '^  KOLO_[A-Z_]+' ;;
    esac
}

# _kolo_first_word: where the command that `kolo run` starts begins, or the end of the line.
_kolo_first_word()
{
    local at wants
    for ((at = 2; at < COMP_CWORD; at++)); do
        [[ ${COMP_WORDS[at]} == -* ]] || break
        wants=$(_kolo_wants run "${COMP_WORDS[at]}")
        [[ -n $wants || ${COMP_WORDS[at]} == --bind ]] && ((at++))
    done
    echo "$at"
}

_kolo()
{
    local _kolo=${COMP_WORDS[0]} command=${COMP_WORDS[1]-} word=${COMP_WORDS[COMP_CWORD]}
    local before=${COMP_WORDS[COMP_CWORD - 1]} first
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$("$_kolo" help | sed -nE 's/^  ([a-z]+) .*/\1/p')" -- "$word")
        return
    fi
    if [[ $command == run ]]; then
        first=$(_kolo_first_word)
        if ((COMP_CWORD > first)); then
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
        elif ((COMP_CWORD == first)) && [[ $word != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
            return
        fi
    fi
    if [[ $before == --bind ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'core none' -- "$word")
    elif [[ $before == -* && $(_kolo_wants "$command" "$before") == FILE ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    elif [[ $before == -* && -n $(_kolo_wants "$command" "$before") ]]; then
        return
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_kolo_options "$command")" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -W "$(_kolo_values "$command")" -- "$word")
        [[ $command == topo || $command == log ]] && mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}
complete -o filenames -F _kolo kolo
