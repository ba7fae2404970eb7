//! Full-screen views of `ctl top` and `bench --top`: takes and restores the terminal, and has the
//! drawing functions of both.

use crate::{Error, plain};
use ratatui::{
    Frame, Terminal,
    backend::TestBackend,
    buffer::Cell,
    crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Row, Table},
};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// Columns and lines of a view that is printed. Every view fits them.
pub const SIZE: (u16, u16) = (80, 24);

/// A terminal in raw mode that shows its alternate screen. Dropping it restores the terminal, and
/// so does a panic of any thread.
#[derive(Debug)]
pub struct Screen {
    terminal: ratatui::DefaultTerminal,
    is_open: bool,
}

impl Screen {
    /// Returns true if standard output is a terminal, on which a view can be shown.
    pub fn is_possible() -> bool {
        io::stdout().is_terminal()
    }

    /// Takes the terminal.
    ///
    /// # Errors
    /// A sentence about a terminal that cannot be used.
    pub fn open() -> Result<Self, Error> {
        Ok(Self { terminal: ratatui::try_init().map_err(of_terminal)?, is_open: true })
    }

    /// Redraws a view.
    ///
    /// # Errors
    /// A sentence about a terminal that is gone.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> Result<(), Error> {
        self.terminal.draw(view).map(drop).map_err(of_terminal)
    }

    /// Waits for a key, at most for `patience`. Returns true if it ends the view: q, Esc or
    /// Ctrl-C, which is no signal in raw mode.
    ///
    /// # Errors
    /// A sentence about a terminal that is gone.
    pub fn wants_end(&self, patience: Duration) -> Result<bool, Error> {
        if !event::poll(patience).map_err(of_terminal)? {
            return Ok(false);
        }
        let Event::Key(key) = event::read().map_err(of_terminal)? else { return Ok(false) };
        let is_interrupt =
            key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        let is_end = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) || is_interrupt;
        Ok(is_end && key.kind == KeyEventKind::Press)
    }

    /// Restores the terminal.
    ///
    /// # Errors
    /// A sentence about a terminal that is gone.
    pub fn close(mut self) -> Result<(), Error> {
        self.is_open = false;
        ratatui::try_restore().map_err(of_terminal)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_open {
            let _ = ratatui::try_restore();
        }
    }
}

fn of_terminal(error: io::Error) -> Error {
    Error::failure(format!("the terminal: {}", plain(&error)))
}

/// Draws a line in bold.
pub fn bold(frame: &mut Frame<'_>, area: Rect, text: &str) {
    frame.render_widget(Line::styled(text, Style::new().add_modifier(Modifier::BOLD)), area);
}

/// Draws a table whose columns are as wide as they have to be. Columns whose heads begin with a
/// space are aligned to the right.
pub fn table(frame: &mut Frame<'_>, area: Rect, heads: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        let cells = cells.chain(heads.get(column).copied().map(str::trim_start));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(width).collect();
    let placed = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(heads).zip(&widths).map(|((cell, head), width)| {
            let cell = cell.trim_start();
            if head.starts_with(' ') { format!("{cell:>width$}") } else { cell.to_owned() }
        });
        Row::new(cells.collect::<Vec<_>>())
    };
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let head = placed(&mut heads.iter().copied()).style(style);
    let body = rows.iter().map(|row| placed(&mut row.iter().map(String::as_str)));
    let widths = widths.iter().map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(0)));
    let body: Vec<_> = body.collect();
    frame.render_widget(Table::new(body, widths).header(head).column_spacing(2), area);
}

/// A view as text of [`SIZE`].
pub fn printed(view: impl FnOnce(&mut Frame<'_>)) -> String {
    let (columns, lines) = SIZE;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, lines));
    let Ok(_) = terminal.draw(view);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content().chunks(usize::from(columns).max(1));
    let text = |row: &[Cell]| {
        let line: String = row.iter().map(Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    };
    rows.map(text).collect()
}
